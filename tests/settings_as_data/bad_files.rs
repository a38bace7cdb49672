//! Bad settings, and what is said about them.

use reqwest_steady::SteadySettings;
use toml::Table;

use crate::files::{read_json, read_toml};

/// A file in the snapshot. Its message follows.
fn file_of(block: &str) -> &str {
    block.split("\n=>").next().unwrap()
}

/// Reads each block of the snapshot, and writes it again with the message of today.
///
/// The blocks are separated by lines of `---`. A file ends at the line `=>`, and the message follows.
#[test]
fn every_bad_file_is_refused_with_its_place_and_a_fix() {
    let snapshot = include_str!("bad_files.txt");
    let mut written = Vec::new();
    for block in snapshot.trim_end().split("\n---\n") {
        let file = file_of(block);
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

/// The same message without what a format adds: TOML shows the line of a file, and JSON tells its number at the end.
fn without_place(message: &str) -> String {
    let mut lines = message.lines();
    let first = lines.next().unwrap();
    let message = match first.split_once("TOML parse error at line ") {
        Some((path, _)) => format!("{path}{}", lines.last().unwrap()),
        None => message.to_owned(),
    };
    match message.split_once(" at line ") {
        Some((text, place)) => format!("{text}{}", place.trim_start_matches(is_of_place)),
        None => message,
    }
}

fn is_of_place(letter: char) -> bool {
    letter.is_ascii_digit() || " column".contains(letter)
}

#[test]
fn bad_settings_get_the_same_message_in_every_format() {
    let mut count = 0;
    for block in include_str!("bad_files.txt").trim_end().split("\n---\n") {
        let file = file_of(block);
        // Others are not TOML.
        let Ok(table) = file.parse::<Table>() else {
            continue;
        };
        let expected = without_place(&read_toml(file).unwrap_err());
        let by_value = SteadySettings::read(table.clone()).unwrap_err().to_string();
        assert_eq!(by_value, expected, "{file}");
        // JSON has neither `nan` nor `inf`.
        if !file.contains("= nan") && !file.contains("= inf") {
            let json = serde_json::to_string(&table).unwrap();
            let by_json = without_place(&read_json(&json).unwrap_err());
            assert_eq!(by_json, expected, "{file}");
            let json = serde_json::to_value(&table).unwrap();
            let by_value = SteadySettings::read(json).unwrap_err().to_string();
            assert_eq!(by_value, expected, "{file}");
        }
        count += 1;
    }
    assert!(count >= 80, "{count} files");
}

#[test]
fn text_that_is_not_json_is_refused_with_its_line() {
    for (text, said) in [
        (
            "{ \"retry\": ",
            "EOF while parsing a value at line 1 column 11",
        ),
        ("retry = 3", "expected value at line 1 column 1"),
        ("{ \"retry\": {} } x", "trailing characters"),
    ] {
        // What follows the settings is not read.
        match read_json(text) {
            Ok(_) => assert_eq!(said, "trailing characters"),
            Err(message) => assert!(message.ends_with(said), "{message}"),
        }
    }
}

#[test]
fn errors_quote_files_and_find_names_in_the_message_only() {
    let file = r#"retry.deadline = "unknown field `x`, expected `max_retries`""#;
    let message = read_toml(file).unwrap_err();
    assert!(message.ends_with("\"1m 30s\""), "{message}");
    for name in ["max`retries", "max_retries` or `y", "ü", ""] {
        let message = read_toml(&format!("[retry]\n{name:?} = 3")).unwrap_err();
        assert!(message.contains(name), "{message}");
        assert!(message.contains("is unknown: "), "{message}");
    }
}
