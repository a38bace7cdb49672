//! Checks that the tests that SECURITY.md names exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust in the folders that hold tests.
fn sources() -> String {
    let mut text = String::new();
    let folders = ["src", "tests", "lab/tests", "proof/tests"].map(|name| root().join(name));
    // The published package has only the first two.
    let mut folders: Vec<PathBuf> = folders.into_iter().filter(|it| it.exists()).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

/// A function of this name is not enough: it must be a test.
fn is_a_test(name: &str, sources: &str) -> bool {
    let head = format!("fn {name}(");
    let mut places = sources.match_indices(&head).map(|(at, _)| at);
    places.any(|at| {
        let before: Vec<_> = sources[..at].lines().rev().take(4).collect();
        before
            .iter()
            .any(|line| line.trim() == "#[test]" || line.trim_start().starts_with("#[tokio::test"))
    })
}

/// A test, a file, a line of source, or a fuzzer.
fn is_there(name: &str, sources: &str) -> bool {
    if name.starts_with("#!") {
        return sources.contains(name);
    }
    if name.contains('_') && !name.contains('/') {
        return is_a_test(name, sources);
    }
    // The published package has neither the models nor the fuzzers, which are separate crates.
    let whole = root().join("models").exists();
    let fuzzer = root().join(format!("fuzz/fuzz_targets/{name}.rs"));
    root().join(name).exists() || fuzzer.exists() || !whole
}

#[test]
fn every_promise_names_an_existing_test() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let sources = sources();
    let (promises, _) = page.split_once("## What is not promised").unwrap();
    let rows = promises.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter(|row| !row.starts_with("| promise "));

    let mut count = 0;
    for row in rows {
        let (_, evidence) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let names: Vec<_> = evidence.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test named: {row}");
        for name in names {
            assert!(is_there(name, &sources), "{name} does not exist: {row}");
        }
        count += 1;
    }
    assert!(count > 15, "{count} promises");
}
