//! Responses of every shape: to the first request, and to those for the rest.

use super::*;

/// Reads a download, and returns the number of bytes that arrived and the status of its error.
async fn refused(server: &Arc<ScriptedServer>) -> (usize, Option<u16>) {
    let (received, text, error) = failed(download(server)).await;
    let error = DownloadError::of(&error).unwrap();
    assert!(!error.is_changed(), "{text}");
    (received, error.status().map(|status| status.as_u16()))
}

#[tokio::test(start_paused = true)]
async fn a_part_that_was_not_asked_for_is_never_read() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, _| file.rest(100, 200, Then::End));
    assert_eq!(download(&server).await.unwrap().status(), 206);
    assert_eq!(refused(&server).await, (0, Some(206)));
    assert_eq!(server.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_part_in_place_of_the_whole_file_is_never_read() {
    let file = Hosted::new(bytes(300));
    for from in [0, 100] {
        let hosted = file.clone();
        let server = serve(move |index, _| match index {
            0 => hosted.whole(0, Then::Fail),
            _ => hosted.rest(from, 300, Then::End),
        });
        assert_eq!(refused(&server).await, (0, Some(206)));
        assert_eq!(server.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_of_the_request_itself_ends_a_download() {
    for status in [304, 412, 416] {
        let file = Hosted::new(bytes(300));
        let server = serve(move |index, _| match index {
            0 => file.whole(0, Then::Fail),
            _ => Reply::status(status),
        });
        assert_eq!(refused(&server).await, (0, Some(status)));
        assert_eq!(server.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_file_is_one_request() {
    for length in [Some(0), None] {
        let server = serve(move |_, _| {
            let body = cut_of(Vec::new(), length, Then::End);
            Reply::status(200).header("etag", "\"one\"").body(body)
        });
        let mut download = download(&server).await.unwrap();
        assert_eq!(download.length(), length);
        assert!(read(&mut download).await.unwrap().is_empty());
        assert_eq!((server.count(), download.resumes()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_announced_length_overflows_nothing() {
    let whole = u64::MAX;
    let server = serve(move |index, _| {
        let reply = match index {
            0 => Reply::status(200),
            _ => Reply::status(206)
                .header("content-range", &format!("bytes 100-{}/{whole}", whole - 1)),
        };
        let length = if index == 0 { whole } else { whole - 100 };
        let body = cut_of(bytes(100), Some(length), Then::Fail);
        reply.header("etag", "\"one\"").body(body)
    });
    let (received, text, _) = failed(download(&server)).await;
    // The second break is at 200, and the server sends the bytes from 100 on again.
    assert_eq!((received, server.count()), (200, 3), "{text}");
    assert_eq!(header(&server, 1, "range").as_deref(), Some("bytes=100-"));
    assert_eq!(header(&server, 2, "range").as_deref(), Some("bytes=200-"));
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_length_ends_where_it_breaks() {
    let server = serve(move |_, _| {
        let body = cut_of(bytes(100), None, Then::Fail);
        Reply::status(200).header("etag", "\"one\"").body(body)
    });
    let (received, text, _) = failed(download(&server)).await;
    assert_eq!((received, server.count()), (100, 1), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_rest_may_come_without_a_length() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    // The server sends only a part of the first rest.
    let server = serve(move |index, request| match index {
        0 => hosted.reply(request, 100, Then::Fail),
        _ => {
            let first = crate::support::file_server::asked_from(request).unwrap();
            let end = if index == 1 { 200 } else { 300 };
            let sent = hosted.bytes[first..end].to_vec();
            Reply::status(206)
                .header("etag", "\"one\"")
                .header("content-range", &format!("bytes {first}-{}/300", end - 1))
                .body(cut_of(sent, None, Then::End))
        }
    });
    let mut download = download(&server).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap(), *file.bytes);
    assert_eq!((server.count(), download.resumes()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_the_date_is_not_trusted() {
    let date = "Tue, 17 Nov 2026 10:00:00 GMT";
    let dated = |reply: Reply| {
        let modified = "Mon, 16 Nov 2026 10:00:00 GMT";
        reply.header("last-modified", modified).header("date", date)
    };
    let file = Hosted {
        etag: None,
        ..Hosted::new(bytes(300))
    };
    // It ignores `If-Range`, and has another file of the same length by now.
    let changed = Hosted {
        etag: None,
        ..Hosted::new(vec![7; 300])
    };
    let server = serve(move |index, _| match index {
        0 => dated(file.whole(100, Then::Fail)),
        _ => changed.rest(100, 300, Then::End).header("date", date),
    });
    let (received, text, error) = failed(download(&server)).await;
    assert_eq!((received, server.count()), (100, 2), "{text}");
    assert!(DownloadError::of(&error).unwrap().is_changed(), "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_a_proxy_has_changed_is_not_mixed_with_the_rest() {
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    // The ETag is that of the original.
    let server = serve(move |index, _| match index {
        0 => Reply::status(203).header("etag", "\"one\"").body(cut_of(
            vec![7; 100],
            Some(300),
            Then::Fail,
        )),
        _ => hosted.rest(100, 300, Then::End),
    });
    let (received, text, _) = failed(download(&server)).await;
    assert_eq!((received, server.count()), (100, 1), "{text}");
    assert!(
        text.contains("its headers do not allow to ask for the rest"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_success_without_a_file_is_empty() {
    let server = ScriptedServer::new(|_| Reply::status(204));
    let mut download = download(&server).await.unwrap();
    assert_eq!(download.status(), 204);
    assert!(read(&mut download).await.unwrap().is_empty());
    assert_eq!(server.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_get_can_be_a_download() {
    let server = ScriptedServer::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    for (request, method) in [
        (client.head(URL), "HEAD"),
        (client.post(URL), "POST"),
        (client.put(URL), "PUT"),
    ] {
        let error = request.download().await.unwrap_err();
        let error = SteadyError::of(&error).expect("refused by this crate");
        let expected = format!("download ({method}) should be a GET");
        assert!(error.to_string().contains(&expected), "{error}");
    }
    let request = client.get(URL).header("if-range", "\"one\"");
    let error = request.download().await.unwrap_err();
    assert!(error.to_string().contains("If-Range"), "{error}");
    assert_eq!(server.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_request_asks_for_no_encoding_whatever_it_said() {
    let file = Hosted::new(bytes(300));
    let server = serve(move |_, request| file.reply(request, 150, Then::Fail));
    let request = request(&server).header("accept-encoding", "gzip, br");
    let mut download = request.download().backoff(exact()).await.unwrap();
    read(&mut download).await.unwrap();
    assert_eq!(server.count(), 2);
    for index in 0..2 {
        let asked = header(&server, index, "accept-encoding");
        assert_eq!(asked.as_deref(), Some("identity"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_download_can_be_sent_between_tasks() {
    fn is_stream<T: futures_util::Stream + Send + Unpin + 'static>(_: &T) {}
    fn is_send<T: Send + 'static>(future: T) -> T {
        future
    }
    let file = Hosted::new(bytes(300));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, 100, Then::Fail));
    let starting = is_send(download(&server).into_future());
    let download = tokio::spawn(starting).await.unwrap().unwrap();
    is_stream(&download);
    let reading = is_send(async move {
        let mut download = download;
        read(&mut download).await
    });
    let read = tokio::spawn(reading).await.unwrap();
    assert_eq!(read.unwrap(), *file.bytes);
    assert_eq!(server.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn debug_shows_settings_and_no_secrets() {
    let server = ScriptedServer::statuses([200]);
    let client = server.client(RetryMiddleware::default());
    let url = "http://user:hunter2@files.example/data.bin?token=hunter3";
    let request = client.get(url).bearer_auth("hunter4").download();
    let text = format!("{request:?}");
    assert!(
        text.contains("max_resumes: 5, stall_timeout: 30s"),
        "{text}"
    );
    let download = request.await.unwrap();
    let shown = format!("{text} {download:?}");
    assert!(shown.contains("status: 200"), "{shown}");
    assert!(!shown.contains("hunter"), "{shown}");
}
