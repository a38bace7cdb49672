//! Downloads that are saved to a file.

use std::fs;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream;
use reqwest_steady::testing::{Reply, ScriptedServer};

use super::*;
use crate::support::directory::Directory;
use crate::support::file_server::asked_from;
use crate::support::stacks::MS;

fn part_files(directory: &Directory) -> usize {
    let names = directory.names();
    names.iter().filter(|name| name.ends_with(".part")).count()
}

#[tokio::test(start_paused = true)]
async fn a_saved_file_is_whole_and_leaves_nothing_beside_it() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 70, Then::Fail));
    let length = download(&server)
        .await
        .unwrap()
        .save(directory.file("data"))
        .await
        .unwrap();
    assert_eq!((length, server.count()), (300, 5));
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
    assert_eq!(directory.names(), ["data"]);
}

#[tokio::test(start_paused = true)]
async fn a_later_save_goes_on_with_what_is_there() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    fs::write(directory.file("data"), "old").unwrap();
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 100, Then::Fail));
    let first = download(&server).max_resumes(0).await.unwrap();
    let error = first.save(directory.file("data")).await.unwrap_err();
    assert_eq!(DownloadError::of(&error).unwrap().received(), 100);
    assert_eq!(fs::read(directory.file("data")).unwrap(), b"old");
    assert_eq!(part_files(&directory), 1);

    let second = download(&server).max_resumes(0).await.unwrap();
    second.save(directory.file("data")).await.unwrap_err();
    assert_eq!(header(&server, 2, "range").as_deref(), Some("bytes=100-"));
    assert_eq!(header(&server, 2, "if-range").as_deref(), Some("\"one\""));
    let third = download(&server).max_resumes(0).await.unwrap();
    assert_eq!(third.save(directory.file("data")).await.unwrap(), 300);
    assert_eq!(header(&server, 4, "range").as_deref(), Some("bytes=200-"));
    assert_eq!(server.count(), 5);
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
    assert_eq!(directory.names(), ["data"]);
}

#[tokio::test(start_paused = true)]
async fn new_bytes_give_back_the_retries_of_a_later_save() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        4 => hosted.reply(request, 10, Then::Fail),
        2 | 3 | 5 | 6 => Reply::status(503),
        _ => hosted.reply(request, 300, Then::End),
    });
    let first = download(&server).max_resumes(0).await.unwrap();
    first.save(directory.file("data")).await.unwrap_err();
    // Two retries of the first request for the rest. Then a resume and two retries of its request.
    let second = download(&server).max_resumes(3).await.unwrap();
    assert_eq!(second.save(directory.file("data")).await.unwrap(), 300);
    assert_eq!(server.count(), 8);
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
}

#[tokio::test(start_paused = true)]
async fn an_empty_file_is_saved() {
    let directory = Directory::new();
    for etag in [Some("\"one\""), None] {
        let file = Hosted {
            etag,
            ..Hosted::new(Vec::new())
        };
        let server = serve(move |_, request| file.reply(request, 0, Then::End));
        fs::write(directory.file("data"), "old").unwrap();
        let download = download(&server).await.unwrap();
        assert_eq!(download.save(directory.file("data")).await.unwrap(), 0);
        assert_eq!(fs::read(directory.file("data")).unwrap(), b"");
        assert_eq!((server.count(), directory.names().len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_fails_for_the_whole_file_is_not_repeated() {
    let file = Hosted::new(bytes(300));
    for status in [412, 416] {
        let directory = Directory::new();
        let hosted = file.clone();
        let server = serve(move |index, request| match index {
            0 => hosted.reply(request, 100, Then::Fail),
            _ => Reply::status(status),
        });
        let saved = download(&server)
            .await
            .unwrap()
            .save(directory.file("data"));
        let error = saved.await.unwrap_err();
        let found = DownloadError::of(&error).unwrap().status();
        assert_eq!(found.map(|found| found.as_u16()), Some(status));
        // The rest does not fit, and the whole file cannot be had.
        assert_eq!(server.count(), 3);
        assert!(!directory.file("data").exists());
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_version_is_asked_for_in_parts_again() {
    let directory = Directory::new();
    let old = Hosted::new(bytes(300));
    let new = Hosted {
        etag: Some("\"two\""),
        ..Hosted::new(vec![7; 300])
    };
    let hosted = new.clone();
    // The server ignores `If-Range`, so that the first part has another tag.
    let server = serve(move |index, request| match (index, asked_from(request)) {
        (0, _) => old.reply(request, 100, Then::Fail),
        (_, Some(first)) => hosted.rest(first, 60, Then::Fail),
        (_, None) => hosted.whole(60, Then::Fail),
    });
    let saved = download(&server)
        .await
        .unwrap()
        .save(directory.file("data"));
    assert_eq!(saved.await.unwrap(), 300);
    assert_eq!(fs::read(directory.file("data")).unwrap(), *new.bytes);
    // The old version, a part that does not fit, and the new one in five parts.
    assert_eq!(server.count(), 2 + 5);
}

#[tokio::test(start_paused = true)]
async fn a_part_without_bytes_does_not_stay() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 0, Then::Fail));
    let saved = download(&server)
        .await
        .unwrap()
        .save(directory.file("data"));
    saved.await.unwrap_err();
    assert_eq!(server.count(), 6);
    assert!(directory.names().is_empty(), "{:?}", directory.names());
}

#[tokio::test(start_paused = true)]
async fn what_is_there_whole_is_not_asked_for() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 100, Then::Fail));
    let first = download(&server).max_resumes(0).await.unwrap();
    first.save(directory.file("data")).await.unwrap_err();
    let part = directory.names().remove(0);
    fs::write(directory.file(&part), &*file.bytes).unwrap();
    let second = download(&server).max_resumes(0).await.unwrap();
    assert_eq!(second.save(directory.file("data")).await.unwrap(), 300);
    // No request for the bytes from 300 to 299.
    assert_eq!(server.count(), 2);
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_another_version_is_not_used() {
    for (etag, length) in [("\"two\"", 300), ("\"one\"", 200), ("\"one\"", 400)] {
        a_part_is_not_used_for(etag, length).await;
    }
}

async fn a_part_is_not_used_for(etag: &'static str, length: usize) {
    let directory = Directory::new();
    let old = Hosted::new(bytes(300));
    let new = Hosted {
        etag: Some(etag),
        ..Hosted::new(vec![7; length])
    };
    let is_new = Arc::new(AtomicBool::new(false));
    let (hosted, renewed) = (new.clone(), is_new.clone());
    let server = serve(move |_, request| match renewed.load(Ordering::SeqCst) {
        false => old.reply(request, 100, Then::Fail),
        true => hosted.reply(request, length, Then::End),
    });
    let first = download(&server).max_resumes(0).await.unwrap();
    first.save(directory.file("data")).await.unwrap_err();
    is_new.store(true, Ordering::SeqCst);
    let second = download(&server).max_resumes(0).await.unwrap();
    let saved = second.save(directory.file("data")).await.unwrap();
    assert_eq!(saved, length as u64);
    assert_eq!(server.count(), 2);
    assert_eq!(fs::read(directory.file("data")).unwrap(), *new.bytes);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_is_saved_from_the_start() {
    for length in [100, 299, 300, 301, 1000] {
        let directory = Directory::new();
        let old = Hosted::new(bytes(300));
        let new = Hosted {
            etag: Some("\"two\""),
            ..Hosted::new(vec![7; length])
        };
        let hosted = new.clone();
        let server = serve(move |index, request| match index {
            0 => old.reply(request, 100, Then::Fail),
            1 => hosted.reply(request, 50, Then::Fail),
            _ => hosted.reply(request, 1000, Then::End),
        });
        let saved = download(&server)
            .await
            .unwrap()
            .save(directory.file("data"))
            .await;
        assert_eq!((saved.unwrap(), server.count()), (length as u64, 3));
        assert_eq!(fs::read(directory.file("data")).unwrap(), *new.bytes);
        assert_eq!(directory.names(), ["data"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_not_saved() {
    let file = Hosted::new(bytes(300));
    for case in 0..lies(&file).len() {
        let (name, _) = lies(&file).remove(case);
        let directory = Directory::new();
        let hosted = file.clone();
        let server = serve(
            move |index, request| match (index, request.headers().get("range")) {
                (0, _) => hosted.reply(request, 100, Then::Fail),
                (_, Some(_)) => lies(&hosted).remove(case).1,
                (_, None) => hosted.reply(request, 300, Then::End),
            },
        );
        let saved = download(&server)
            .await
            .unwrap()
            .save(directory.file("data"))
            .await;
        assert_eq!(saved.unwrap(), 300, "{name}");
        assert_eq!(
            fs::read(directory.file("data")).unwrap(),
            *file.bytes,
            "{name}"
        );
        let requests = if name == "ignores ranges" { 2 } else { 3 };
        assert_eq!(server.count(), requests, "{name}");
        assert_eq!(directory.names(), ["data"], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn starting_over_without_getting_further_is_limited() {
    let directory = Directory::new();
    let file = Hosted {
        etag: None,
        ..Hosted::new(bytes(300))
    };
    let server = serve(move |index, _| file.whole(if index == 2 { 150 } else { 100 }, Then::Fail));
    let error = download(&server)
        .await
        .unwrap()
        .save(directory.file("data"))
        .await
        .unwrap_err();
    // Two requests to get to 150 bytes, and five more in which nothing new came.
    assert_eq!(server.count(), 1 + 2 + 5);
    let error = DownloadError::of(&error).unwrap().to_string();
    assert!(error.contains("no resumes are left"), "{error}");
    assert!(directory.names().is_empty(), "{:?}", directory.names());
}

#[tokio::test(start_paused = true)]
async fn an_error_page_is_not_saved() {
    let directory = Directory::new();
    for status in [204, 206, 301, 304, 404, 416, 503] {
        let server = ScriptedServer::new(move |_| Reply::status(status).body("not the file"));
        let client = server.client(RetryMiddleware::builder().max_retries(0).build().unwrap());
        let download = client.get(URL).download().await.unwrap();
        let error = download.save(directory.file("data")).await.unwrap_err();
        let found = DownloadError::of(&error).unwrap().status();
        assert_eq!(found.map(|found| found.as_u16()), Some(status));
    }
    assert!(directory.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_written_is_an_error_with_its_path() {
    let directory = Directory::new();
    fs::create_dir(directory.file("folder")).unwrap();
    fs::write(directory.file("folder/inside"), "x").unwrap();
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 300, Then::End));
    let mut paths = vec![
        directory.file("missing/data"),
        directory.file("folder"),
        directory.file("folder/.."),
    ];
    #[cfg(target_os = "linux")]
    paths.push("/sys/data".into());
    // It stands for devices and pipes, which are not replaced either.
    #[cfg(unix)]
    let _socket = {
        paths.push(directory.file("folder/socket"));
        std::os::unix::net::UnixListener::bind(directory.file("folder/socket")).unwrap()
    };
    for path in paths {
        let error = download(&server)
            .await
            .unwrap()
            .save(&path)
            .await
            .unwrap_err();
        let error = DownloadError::of(&error).unwrap();
        assert!(error.io().is_some(), "{error}");
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
        // Nothing was written before, not even a part.
        assert_eq!(error.received(), 0);
    }
    assert_eq!(fs::read(directory.file("folder/inside")).unwrap(), b"x");
    assert_eq!(directory.names(), ["folder"]);
}

#[tokio::test(start_paused = true)]
async fn a_save_after_some_chunks_saves_the_whole_file() {
    for etag in [Some("\"one\""), None] {
        let directory = Directory::new();
        let file = Hosted {
            etag,
            ..Hosted::new(bytes(300))
        };
        let hosted = file.clone();
        let server = serve(move |_, request| hosted.reply(request, 300, Then::End));
        let mut download = download(&server).await.unwrap();
        assert_eq!(download.chunk().await.unwrap().unwrap().len(), 150);
        let length = download.save(directory.file("data")).await.unwrap();
        assert_eq!((length, server.count()), (300, 2));
        assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_after_the_end_or_an_error_saves_the_whole_file() {
    for (sent, then) in [(300, Then::End), (100, Then::Fail), (0, Then::Fail)] {
        let directory = Directory::new();
        let file = Hosted::new(bytes(300));
        let hosted = file.clone();
        let server = serve(move |index, request| match index {
            0 => hosted.reply(request, sent, then),
            _ => hosted.reply(request, 300, Then::End),
        });
        let mut download = download(&server).max_resumes(0).await.unwrap();
        assert_eq!(read(&mut download).await.is_ok(), sent == 300);
        assert_eq!(download.save(directory.file("data")).await.unwrap(), 300);
        assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
        assert_eq!(server.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_of_another_url_is_not_used() {
    let directory = Directory::new();
    let (one, two) = (Hosted::new(bytes(300)), Hosted::new(vec![7; 300]));
    let hosted = two.clone();
    let server = serve(move |_, request| match request.url().path() {
        "/one" => one.reply(request, 100, Then::Fail),
        _ => hosted.reply(request, 300, Then::End),
    });
    let client = server.client(RetryMiddleware::default());
    let get = |path: &str| client.get(format!("http://files.example{path}"));
    let first = get("/one").download().max_resumes(0).await.unwrap();
    first.save(directory.file("data")).await.unwrap_err();
    let second = get("/two").download().await.unwrap();
    second.save(directory.file("data")).await.unwrap();
    // The servers say the same ETag and length.
    assert_eq!(fs::read(directory.file("data")).unwrap(), *two.bytes);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_success_is_not_the_file() {
    for status in [202, 204, 205, 226] {
        let directory = Directory::new();
        let file = Hosted::new(bytes(300));
        let server = serve(move |index, request| match index {
            0 => file.reply(request, 100, Then::Fail),
            _ => Reply::status(status).body("soon"),
        });
        let saved = download(&server)
            .await
            .unwrap()
            .save(directory.file("data"))
            .await;
        let error = saved.unwrap_err();
        let found = DownloadError::of(&error).unwrap().status();
        assert_eq!(found.map(|found| found.as_u16()), Some(status));
        assert!(!directory.file("data").exists());
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_others_move_is_never_made_the_target() {
    let directory = Directory::new();
    fs::write(directory.file("data"), vec![9; 300]).unwrap();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Stall),
        _ => hosted.reply(request, 300, Then::End),
    });
    let save = download(&server)
        .await
        .unwrap()
        .save(directory.file("data"));
    let mut save = std::pin::pin!(save);
    assert!(tokio::time::timeout(SEC, save.as_mut()).await.is_err());
    let part = directory
        .names()
        .into_iter()
        .find(|name| name.ends_with(".part"));
    let part = directory.file(&part.unwrap());
    fs::remove_file(&part).unwrap();
    fs::write(&part, "another program").unwrap();
    let error = save.await.unwrap_err();
    let error = DownloadError::of(&error).unwrap();
    assert!(
        error.io().unwrap().to_string().contains("part file"),
        "{error:?}"
    );
    assert_eq!(fs::read(directory.file("data")).unwrap(), [9; 300]);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_others_write_to_is_never_made_the_target() {
    let directory = Directory::new();
    fs::write(directory.file("data"), vec![9; 300]).unwrap();
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 100, Then::Stall),
        _ => file.reply(request, 300, Then::End),
    });
    let saving = download(&server)
        .await
        .unwrap()
        .save(directory.file("data"));
    let mut saving = std::pin::pin!(saving);
    assert!(tokio::time::timeout(SEC, saving.as_mut()).await.is_err());
    let names = directory.names();
    let part = names.iter().find(|name| name.ends_with(".part")).unwrap();
    let part = directory.file(part);
    let theirs = fs::OpenOptions::new().write(true).open(part).unwrap();
    theirs.set_len(301).unwrap();
    let error = saving.await.unwrap_err();
    assert!(DownloadError::of(&error).unwrap().io().is_some());
    assert_eq!(fs::read(directory.file("data")).unwrap(), [9; 300]);
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_comes_back_begins_with_its_first_byte() {
    let directory = Directory::new();
    let old = Hosted::new(bytes(300));
    let new = Hosted {
        etag: Some("\"two\""),
        ..Hosted::new(vec![7; 300])
    };
    let hosted = new.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        1 => old.reply(request, 50, Then::Fail),
        _ => hosted.reply(request, 300, Then::End),
    });
    let first = download(&server).max_resumes(0).await.unwrap();
    first.save(directory.file("data")).await.unwrap_err();
    // There are 100 bytes of the new version when the file changes to it.
    let second = download(&server).await.unwrap();
    assert_eq!(second.save(directory.file("data")).await.unwrap(), 300);
    assert_eq!(fs::read(directory.file("data")).unwrap(), *new.bytes);
    assert_eq!((server.count(), directory.names().len()), (3, 1));
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_link_in_place_of_the_part_is_not_followed() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        _ => hosted.reply(request, 300, Then::End),
    });
    let first = download(&server).max_resumes(0).await.unwrap();
    first.save(directory.file("data")).await.unwrap_err();
    let part = directory.file(&directory.names().remove(0));
    fs::remove_file(&part).unwrap();
    fs::write(directory.file("victim"), "precious").unwrap();
    std::os::unix::fs::symlink(directory.file("victim"), &part).unwrap();
    download(&server)
        .await
        .unwrap()
        .save(directory.file("data"))
        .await
        .unwrap();
    assert_eq!(fs::read(directory.file("victim")).unwrap(), b"precious");
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
    assert!(directory.file("data").symlink_metadata().unwrap().is_file());
}

#[tokio::test(start_paused = true)]
async fn three_saves_of_one_file_never_take_each_others_part() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        2 => hosted.reply(request, 10, Then::Fail),
        _ => hosted.reply(request, 300, Then::End),
    });
    let target = directory.file("data");
    let a = async {
        let slow = Backoff::exponential(10 * SEC).jitter(Jitter::None);
        let a = request(&server).download().backoff(slow).await.unwrap();
        a.save(&target).await.unwrap();
        assert_eq!(fs::read(&target).unwrap(), *file.bytes);
    };
    let others = async {
        tokio::time::sleep(SEC).await;
        download(&server)
            .await
            .unwrap()
            .save(&target)
            .await
            .unwrap();
        let c = download(&server).max_resumes(0).await.unwrap();
        c.save(&target).await.unwrap_err();
        assert_eq!(fs::read(&target).unwrap(), *file.bytes);
    };
    tokio::join!(a, others);
    assert_eq!(fs::read(&target).unwrap(), *file.bytes);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_save_leaves_the_target_and_a_part_to_go_on_with() {
    let directory = Directory::new();
    fs::write(directory.file("data"), "old").unwrap();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Stall),
        _ => hosted.reply(request, 300, Then::End),
    });
    let save = download(&server)
        .await
        .unwrap()
        .save(directory.file("data"));
    assert!(tokio::time::timeout(SEC, save).await.is_err());
    assert_eq!(fs::read(directory.file("data")).unwrap(), b"old");
    assert_eq!(part_files(&directory), 1);
    download(&server)
        .await
        .unwrap()
        .save(directory.file("data"))
        .await
        .unwrap();
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
    assert_eq!(directory.names(), ["data"]);
}

#[tokio::test(start_paused = true)]
async fn starting_over_cuts_no_file_that_others_have_open() {
    let file = Hosted::new(bytes(300));
    for is_moved in [false, true] {
        let directory = Directory::new();
        let hosted = file.clone();
        let server = serve(move |index, request| match index {
            0 => hosted.reply(request, 100, Then::Stall),
            1 => hosted.whole(50, Then::Stall),
            _ => hosted.reply(request, 300, Then::End),
        });
        let saving = download(&server)
            .await
            .unwrap()
            .save(directory.file("data"));
        let mut saving = std::pin::pin!(saving);
        assert!(tokio::time::timeout(SEC, saving.as_mut()).await.is_err());
        // Another program has the same part: it writes it, or it has made it the target.
        let part = directory.file(&directory.names().remove(0));
        let theirs = fs::OpenOptions::new().append(true).open(&part).unwrap();
        if is_moved {
            fs::rename(&part, directory.file("data")).unwrap();
        }
        assert!(
            tokio::time::timeout(60 * SEC, saving.as_mut())
                .await
                .is_err()
        );
        assert_eq!((server.count(), theirs.metadata().unwrap().len()), (2, 100));
        assert_eq!(saving.await.unwrap(), 300);
        assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
        assert_eq!(theirs.metadata().unwrap().len(), 100);
        assert_eq!(directory.names(), ["data"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_of_another_length_is_used_as_far_as_it_fits() {
    let file = Hosted::new(bytes(300));
    // Cut, empty, as long as the file, and longer than the file.
    for (length, range) in [(70, Some("bytes=70-")), (0, None), (300, None), (301, None)] {
        let directory = Directory::new();
        let hosted = file.clone();
        let server = serve(move |index, request| match index {
            0 => hosted.reply(request, 100, Then::Fail),
            _ => hosted.reply(request, 300, Then::End),
        });
        let first = download(&server).max_resumes(0).await.unwrap();
        first.save(directory.file("data")).await.unwrap_err();
        let part = directory.file(&directory.names().remove(0));
        let mut found = file.bytes.to_vec();
        found.resize(length, 1);
        fs::write(&part, found).unwrap();
        let second = download(&server).await.unwrap();
        assert_eq!(second.save(directory.file("data")).await.unwrap(), 300);
        assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
        let asked = header(&server, server.count() - 1, "range");
        assert_eq!(asked.as_deref(), range, "{length}");
        assert_eq!(directory.names(), ["data"]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_target_with_two_spellings_has_one_owner() {
    let directory = Directory::new();
    fs::create_dir(directory.file("sub")).unwrap();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 40, Then::Fail));
    let save = |path: &str| {
        let (download, target) = (download(&server), directory.file(path));
        async move { download.await?.save(target).await }
    };
    let (one, other) = tokio::join!(save("data"), save("sub/../data"));
    assert_eq!((one.unwrap(), other.unwrap()), (300, 300));
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
    assert_eq!(directory.names(), ["data", "sub"]);
}

#[tokio::test(start_paused = true)]
async fn a_target_with_the_longest_name_is_saved() {
    let file = Hosted::new(bytes(300));
    for name in [
        "n".repeat(255),
        "\u{e4}".repeat(127),
        "\u{1f980}".repeat(63),
    ] {
        let directory = Directory::new();
        let hosted = file.clone();
        let server = serve(move |_, request| hosted.reply(request, 100, Then::Fail));
        let first = download(&server).max_resumes(0).await.unwrap();
        first.save(directory.file(&name)).await.unwrap_err();
        assert_eq!(part_files(&directory), 1);
        let second = download(&server).await.unwrap();
        assert_eq!(second.save(directory.file(&name)).await.unwrap(), 300);
        assert_eq!(directory.names(), [name]);
        assert_eq!(header(&server, 2, "range").as_deref(), Some("bytes=100-"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_vanishes_is_an_error() {
    let directory = Directory::new();
    fs::create_dir(directory.file("folder")).unwrap();
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 100, Then::Stall),
        _ => file.reply(request, 300, Then::End),
    });
    let target = directory.file("folder/data");
    let saving = download(&server).await.unwrap().save(&target);
    let mut saving = std::pin::pin!(saving);
    assert!(tokio::time::timeout(SEC, saving.as_mut()).await.is_err());
    fs::remove_dir_all(directory.file("folder")).unwrap();
    let error = saving.await.unwrap_err();
    assert!(
        DownloadError::of(&error).unwrap().io().is_some(),
        "{error:?}"
    );
    assert!(directory.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_saves_of_one_file_at_once_both_leave_it_whole() {
    let file = Hosted::new(bytes(300));
    for sent in 1..60 {
        let directory = Directory::new();
        let hosted = file.clone();
        let server = serve(move |_, request| hosted.reply(request, sent, Then::Fail));
        let save = || async { download(&server).await?.save(directory.file("data")).await };
        let (one, other) = tokio::join!(save(), save());
        assert_eq!((one.unwrap(), other.unwrap()), (300, 300));
        assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
        assert_eq!(part_files(&directory), 0);
    }
}

/// A part for the bytes from 100 to 299. They are all wrong, and ten more follow after a pause.
fn too_long(pause: Duration) -> Reply {
    let wrong = stream::iter([vec![7; 200]]);
    let more = stream::once(async move {
        // A sleep of zero would be a wait, too.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        vec![7; 10]
    });
    Reply::status(206)
        .header("etag", "\"one\"")
        .header("content-range", "bytes 100-299/300")
        .body(reqwest::Body::wrap_stream(
            wrong.chain(more).map(std::io::Result::Ok),
        ))
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_refused_body_do_not_stay() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        1 => too_long(Duration::ZERO),
        2 => Reply::status(403),
        _ => hosted.reply(request, 300, Then::End),
    });
    let first = download(&server).await.unwrap();
    first.save(directory.file("data")).await.unwrap_err();
    assert_eq!(server.count(), 3);
    let part = directory.file(&directory.names().remove(0));
    assert_eq!(fs::read(part).unwrap(), bytes(100));
    let second = download(&server).await.unwrap();
    assert_eq!(second.save(directory.file("data")).await.unwrap(), 300);
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_refused_body_do_not_stay_if_no_resume_is_left() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 100, Then::Fail),
        _ => too_long(Duration::ZERO),
    });
    // The wrong bytes are no progress, so they do not give the resume back.
    let saving = download(&server).max_resumes(1).await.unwrap();
    let error = saving.save(directory.file("data")).await.unwrap_err();
    assert!(DownloadError::of(&error).is_some(), "{error}");
    assert_eq!(server.count(), 2);
    let part = directory.file(&directory.names().remove(0));
    assert_eq!(fs::read(part).unwrap(), bytes(100));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_grows_too_long_after_a_pause_is_refused() {
    for pause in [1, 1000, 29_000] {
        let directory = Directory::new();
        let file = Hosted::new(bytes(300));
        let hosted = file.clone();
        let server = serve(move |index, request| match index {
            0 => hosted.reply(request, 100, Then::Fail),
            1 => too_long(pause * MS),
            _ => hosted.reply(request, 300, Then::End),
        });
        let saving = download(&server).await.unwrap();
        assert_eq!(saving.save(directory.file("data")).await.unwrap(), 300);
        assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
        assert_eq!(server.count(), 3, "{pause} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_whole_with_its_last_byte() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        _ => Reply::status(206)
            .header("etag", "\"one\"")
            .header("content-range", "bytes 100-299/300")
            .body(reqwest::Body::wrap_stream(
                stream::iter([Ok::<_, std::io::Error>(hosted.bytes[100..].to_vec())])
                    .chain(stream::pending()),
            )),
    });
    let start = Instant::now();
    let request = download(&server).backoff(exact()).stall_timeout(4 * SEC);
    let saving = request.await.unwrap();
    assert_eq!(saving.save(directory.file("data")).await.unwrap(), 300);
    assert_eq!(fs::read(directory.file("data")).unwrap(), *file.bytes);
    assert_eq!(server.count(), 2);
    let waited = start.elapsed();
    assert!(waited >= 4 * SEC && waited < 6 * SEC, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_after_a_body_that_was_too_long() {
    // A file of 100 bytes, and an empty one, of which no byte is missing.
    for length in [300, 0] {
        let directory = Directory::new();
        let file = Hosted::new(bytes(300));
        let server = serve(move |index, request| match (index, length) {
            (0, 0) => Reply::status(200).header("etag", "\"one\"").body(cut(
                bytes::Bytes::from_static(b"more"),
                0,
                Then::End,
            )),
            (0, _) => file.reply(request, 100, Then::Fail),
            (1, 300) => too_long(Duration::ZERO),
            _ => Reply::silence(),
        });
        let request = bare(&server).get(URL).deadline(SEC).download();
        let request = request.backoff(exact()).stall_timeout(4 * SEC);
        let (start, mut polls) = (Instant::now(), 0);
        let mut saving = Box::pin(request.await.unwrap().save(directory.file("data")));
        let result = std::future::poll_fn(|context| {
            polls += 1;
            saving.as_mut().poll(context)
        });
        let error = result.await.unwrap_err();
        assert!(
            start.elapsed() <= SEC + 2 * MS,
            "{error} {:?}",
            start.elapsed()
        );
        assert!(polls < 100, "{polls} polls");
    }
}

/// Polls once. The only blocking thread is busy meanwhile, so each operation on a file needs another poll.
async fn polled_once<F: Future>(future: Pin<&mut F>) -> bool {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let busy = tokio::task::spawn_blocking(move || held.recv());
    let is_ready = futures_util::poll!(future).is_ready();
    drop(release);
    let _ = busy.await.unwrap();
    is_ready
}

#[test]
fn a_save_dropped_while_it_opens_a_part_keeps_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let dropped_after = |polls: usize| async move {
        let directory = Directory::new();
        let file = Hosted::new(bytes(300));
        let server = serve(move |index, request| match index {
            0 => file.reply(request, 100, Then::Fail),
            _ => file.reply(request, 50, Then::Stall),
        });
        let first = download(&server).max_resumes(0).await.unwrap();
        first.save(directory.file("data")).await.unwrap_err();
        let part = directory.file(&directory.names().remove(0));
        let second = download(&server).await.unwrap();
        let mut saving = Box::pin(second.save(directory.file("data")));
        for _ in 0..polls {
            assert!(!polled_once(saving.as_mut()).await);
        }
        drop(saving);
        // Waits for what runs in the background.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        let length = fs::metadata(&part).map(|found| found.len());
        assert!(length.is_ok_and(|length| length >= 100), "{polls} polls");
        server.count()
    };
    let requests = (1..15).map(|polls| runtime.block_on(dropped_after(polls)));
    // At first the part was not yet open, and at last the rest was requested.
    let requests: Vec<_> = requests.collect();
    assert_eq!((requests[0], requests[13]), (2, 3), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn progress_counts_a_part_that_is_there_and_begins_again() {
    let directory = Directory::new();
    let file = Hosted::new(bytes(300));
    let server = serve(move |index, request| match index {
        0 => file.reply(request, 100, Then::Fail),
        // The later save reads these headers, and then requests the rest.
        1 => file.reply(request, 0, Then::Stall),
        2 => file.reply(request, 50, Then::Fail),
        // The server no longer sends parts.
        _ => file.whole(300, Then::End),
    });
    let first = download(&server).max_resumes(0).await.unwrap();
    first.save(directory.file("data")).await.unwrap_err();

    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let request = download(&server).on_progress(move |progress: Progress| {
        notes.lock().unwrap().push(progress.received());
    });
    let saved = request.await.unwrap().save(directory.file("data")).await;
    assert_eq!(saved.unwrap(), 300);
    // Each body comes in two chunks.
    let expected = [125, 150, 0, 150, 300];
    assert_eq!(*seen.lock().unwrap(), expected);
}
