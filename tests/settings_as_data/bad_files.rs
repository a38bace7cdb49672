//! Bad settings, and what is said about them.

use crate::files::read_toml;

/// Reads each block of the snapshot, and writes it again with the message of today.
///
/// The blocks are separated by lines of `---`. A file ends at the line `=>`, and the message follows.
#[test]
fn every_bad_file_is_refused_with_its_place_and_a_fix() {
    let snapshot = include_str!("bad_files.txt");
    let mut written = Vec::new();
    for block in snapshot.trim_end().split("\n---\n") {
        let file = block.split("\n=>").next().unwrap();
        let message = match read_toml(file) {
            Ok(_) => "no error".to_owned(),
            Err(message) => message,
        };
        let message: Vec<_> = message.lines().map(str::trim_end).collect();
        written.push(format!("{file}\n=>\n{}", message.join("\n")));
    }
    assert!(written.len() >= 40, "{} files", written.len());
    let written = written.join("\n---\n") + "\n";
    if std::env::var_os("STEADY_RENEW").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/settings_as_data/bad_files.txt"
        );
        std::fs::write(path, &written).unwrap();
    }
    assert_eq!(
        written, snapshot,
        "set STEADY_RENEW=1 to accept new messages"
    );
    assert!(!written.contains("no error"));
}
