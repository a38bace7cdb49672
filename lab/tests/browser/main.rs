//! Tests of the lab's pages in a real browser, if one is installed.

mod chromium;
mod page;
mod serve;

use std::path::Path;
use std::process::Command;

/// Finds what is wrong with the layout of an open page.
const LAYOUT: &str = include_str!("layout.js");

/// Runs the lab with these arguments. It writes its page into this file.
fn lab(line: &str, page: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(line.split_whitespace())
        .arg("--out")
        .arg(page)
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
