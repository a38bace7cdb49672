//! Tests of the page in a real browser, if one is installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use anyhow::ensure;
use tokio::process::Command;
use tokio::time::timeout;

use crate::page::page;
use crate::results::{Results, Run};
use crate::scenarios::find;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A temporary directory that is removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("steady-lab-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a browser that can open this page. An installed browser may lack the permission.
fn browser(page: &Path, directory: &Directory) -> Option<&'static str> {
    let opens = |name: &&str| {
        let opened = open(name, page, directory, &["--dump-dom".to_owned()]);
        opened.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("<svg"))
    };
    let found = BROWSERS.into_iter().find(opens);
    let required = std::env::var_os("STEADY_REQUIRE_BROWSER").is_some();
    assert!(
        found.is_some() || !required,
        "none of {BROWSERS:?} opens the page"
    );
    found
}

/// Opens the page. Kills the browser after a minute.
fn open(
    browser: &str,
    page: &Path,
    directory: &Directory,
    extra: &[String],
) -> anyhow::Result<Output> {
    let mut command = Command::new(browser);
    let profile = directory.file("profile");
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args([
            "--disable-sync",
            "--hide-scrollbars",
            "--window-size=1200,1600",
        ])
        // Resolves no names, so neither the page nor the browser itself can connect.
        .args(["--host-resolver-rules=MAP * ~NOTFOUND"])
        .args(["--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(extra)
        .arg(format!("file://{}", page.display()))
        .kill_on_drop(true);
    let runtime = tokio::runtime::Runtime::new()?;
    let output =
        runtime.block_on(async { timeout(Duration::from_secs(60), command.output()).await });
    let output = output??;
    ensure!(output.status.success(), "{output:?}");
    Ok(output)
}

/// Returns what the browser logs about the page.
fn complaints(browser: &str, page: &Path, directory: &Directory, extra: &[String]) -> String {
    let output = open(browser, page, directory, extra).unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns all colours of a picture.
fn colours(png: &Path) -> BTreeSet<[u8; 3]> {
    let file = std::io::BufReader::new(fs::File::open(png).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let pixels = pixels[..info.buffer_size()].chunks(info.color_type.samples());
    pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}

#[test]
fn a_browser_draws_the_page_in_light_and_dark_without_errors() {
    let scenario = find("herd").unwrap();
    let run = |stack: &(&'static str, _)| Run::of(scenario, 500, 1, *stack);
    let results = Results {
        scenario,
        clients: 500,
        seed: 1,
        runs: scenario.stacks.iter().map(run).collect(),
    };
    let directory = Directory::new();
    let file = directory.file("lab.html");
    let whole = page(&[results]);
    fs::write(&file, &whole).unwrap();
    let Some(browser) = browser(&file, &directory) else {
        println!("skipped: none of {BROWSERS:?} opens the page");
        return;
    };

    // The colours of `STYLE` in the charts: paper, accepted, refused.
    let light = [[0xff, 0xff, 0xff], [0x0b, 0x5f, 0x94], [0xe0, 0x70, 0x1a]];
    let dark = [[0x12, 0x16, 0x1c], [0x85, 0xcb, 0xf5], [0xd9, 0x69, 0x1e]];
    for (scheme, expected, absent) in [(1, light, dark), (0, dark, light)] {
        let picture = directory.file("page.png");
        let extra = [
            format!("--blink-settings=preferredColorScheme={scheme}"),
            format!("--screenshot={}", picture.display()),
        ];
        let log = complaints(browser, &file, &directory, &extra);
        assert!(!log.contains("CONSOLE"), "{log}");
        let drawn = colours(&picture);
        assert!(
            expected.iter().all(|colour| drawn.contains(colour)),
            "{scheme}"
        );
        assert!(
            !absent[1..].iter().any(|colour| drawn.contains(colour)),
            "{scheme}"
        );
    }

    // The policy of the page forbids these, so the browser logs errors. Without errors above, the page has none of them.
    for wrong in [
        "<img src='http://elsewhere.example/a.png'>",
        "<img src='file:///a.png'>",
        "<script>draw()</script>",
        "<link rel='stylesheet' href='http://elsewhere.example/a.css'>",
    ] {
        fs::write(&file, whole.replace("</body>", &format!("{wrong}</body>"))).unwrap();
        let log = complaints(browser, &file, &directory, &["--dump-dom".to_owned()]);
        assert!(log.contains("CONSOLE"), "{wrong}: {log}");
    }
}
