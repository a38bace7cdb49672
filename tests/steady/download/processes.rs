//! Downloads of a process that ends in the middle, and of one that may write no more.
//!
//! The process is this test program, which runs one test of this file.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;

use super::*;
use crate::support::directory::Directory;

const LENGTH: usize = 256 * 1024;
/// The path to which the process saves, and how many bytes its server sends before it falls silent.
const TARGET: &str = "STEADY_SAVES_TO";
const SENT: &str = "STEADY_SENDS";

fn child(target: &Path, sent: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = format!("{}::a_process_saves_what_it_is_asked_to", module_path!());
    // The name of a test has no crate.
    let (_, test) = test.split_once("::").unwrap();
    command.args(["--exact", test, "--nocapture"]);
    command.env(TARGET, target).env(SENT, sent.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[tokio::test]
async fn a_process_saves_what_it_is_asked_to() {
    let (Some(target), Some(sent)) = (std::env::var_os(TARGET), std::env::var_os(SENT)) else {
        return;
    };
    let sent = sent.to_str().unwrap().parse().unwrap();
    let file = Hosted::new(bytes(LENGTH));
    let server = serve(move |_, request| file.reply(request, sent, Then::Stall));
    let saved = download(&server).await.unwrap().save(&target).await;
    // Only a full disk ends it.
    let error = saved.unwrap_err();
    let error = DownloadError::of(&error).unwrap();
    assert!(error.io().is_some(), "{error}");
    assert_eq!(fs::read(&target).unwrap(), b"old");
    assert_eq!(server.count(), 1);
}

/// Saves in this process, and returns the range that was asked for.
async fn save_again(target: &Path) -> Option<String> {
    let file = Hosted::new(bytes(LENGTH));
    let hosted = file.clone();
    let server = serve(move |_, request| hosted.reply(request, LENGTH, Then::End));
    let saved = download(&server).await.unwrap().save(target).await;
    assert_eq!(saved.unwrap(), LENGTH as u64);
    assert!(fs::read(target).unwrap() == *file.bytes);
    header(&server, server.count() - 1, "range")
}

fn part_length(directory: &Directory) -> usize {
    let names = directory.names();
    let part = names.iter().find(|name| name.ends_with(".part"));
    let length = |name: &String| fs::metadata(directory.file(name)).unwrap().len();
    part.map_or(0, length) as usize
}

#[tokio::test]
async fn a_process_that_is_killed_leaves_a_part_to_go_on_with() {
    let directory = Directory::new();
    let target = directory.file("data");
    fs::write(&target, "old").unwrap();
    let sent = 100_000;
    let mut process = child(&target, sent).spawn().unwrap();
    for _ in 0..1000 {
        if part_length(&directory) == sent {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(part_length(&directory), sent);
    assert_eq!(fs::read(&target).unwrap(), b"old");
    let range = save_again(&target).await;
    assert_eq!(range.as_deref(), Some("bytes=100000-"));
    assert_eq!(directory.names(), ["data"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_full_disk_leaves_the_target_and_a_part_to_go_on_with() {
    let directory = Directory::new();
    let target = directory.file("data");
    fs::write(&target, "old").unwrap();
    let whole = child(&target, LENGTH);
    // No file may get longer than 64 blocks, and a signal must not end the process.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"]);
    limited.arg(whole.get_program()).args(whole.get_args());
    limited.envs(
        whole
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = limited.stdout(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let part = part_length(&directory);
    assert!((1..LENGTH).contains(&part), "{part}");
    let range = save_again(&target).await;
    assert_eq!(range, Some(format!("bytes={part}-")));
    assert_eq!(directory.names(), ["data"]);
}
