//! Your settings on the page of `lab serve`.

use serde_json::json;

use super::Server;
use super::page::{PROBLEM, TITLE, words};
use crate::chromium::{Browser, Directory, Scheme};

/// The chart of the client with your settings, which is the last one.
const YOURS: &str =
    "[...document.querySelectorAll('#charts .plot')].map(it => it.innerHTML).at(3) ?? ''";

/// Picks a service, changes three settings, sees the charts change, copies, and runs the texts with `lab try`. All with
/// the keyboard.
#[test]
fn settings_move_the_charts_and_lab_try_agrees() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    for (width, scheme) in [(1280, Scheme::Light), (400, Scheme::Dark)] {
        browser.open(&server.url(), width, scheme);
        browser.allow_clipboard();
        browser.wait_for_change(TITLE, "");
        browser.tab_to("example");
        // The first after the eight scenarios.
        for _ in 0..8 {
            browser.press("ArrowDown");
        }
        let name = "document.querySelector('#charts .topic').textContent";
        browser.wait_for(name, "A small API");
        assert_eq!(browser.table().len(), 3, "no row without changes");

        browser.open_details("yours");
        let mut chart = String::new();
        for (field, text) in [
            ("retry.max_retries", "1"),
            ("throttle.max_queue_wait", "8s"),
            ("throttle.rate.limit", "12/s"),
        ] {
            browser.tab_to(field);
            browser.type_over(text);
            let (next, took) = browser.wait_for_change(YOURS, &chart);
            // For a person to read. What a run computes is bounded, and only that is tested.
            println!("{field}: {took:?}");
            chart = next;
        }

        let rust = browser.copy("copy-rust");
        assert!(rust.contains(".rate(12.0, 10)"), "{rust}");
        let settings = browser.copy("copy-toml");
        assert_eq!(
            settings,
            "[retry]\nmax_retries = 1\n\n[throttle]\nmax_queue_wait = \"8s\"\n\n[throttle.rate]\n\
             burst = 10\nlimit = \"12/s\"\n"
        );
        browser.open_details("describe");
        browser.open_details("service-text");
        let service = browser.copy("copy");

        // The same texts give the same table.
        let directory = Directory::new();
        let [service_file, settings_file, page] =
            ["service.toml", "steady.toml", "page.html"].map(|name| directory.file(name));
        std::fs::write(&service_file, service).unwrap();
        std::fs::write(&settings_file, settings).unwrap();
        let line = format!(
            "try --service {} --settings {}",
            service_file.display(),
            settings_file.display()
        );
        let printed = words(&crate::lab(&line, &page));
        let rows = browser.table();
        assert_eq!(rows.len(), 4);
        assert!(rows[3].starts_with("your settings "), "{}", rows[3]);
        for row in rows {
            assert!(printed.contains(&words(&row)), "{row}: {printed}");
        }
        assert_eq!(browser.complaints(), [""; 0]);
    }
}

#[test]
fn pasted_settings_fill_the_form_and_defaults_empty_it() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    browser.open(&server.url(), 1280, Scheme::Light);
    browser.allow_clipboard();
    let (title, _) = browser.wait_for_change(TITLE, "");
    browser.open_details("settings-text");
    browser.tab_to("settings-toml");
    browser.type_over("retry.max_retries = 2\nretry.status = { 404 = 'conditional' }");
    browser.tab_to("use-settings");
    browser.press("Enter");
    let (title, _) = browser.wait_for_change(TITLE, &title);
    assert!(title.starts_with("With your settings, "), "{title}");
    let retries = "document.getElementsByName('retry.max_retries')[0].value";
    assert_eq!(browser.value(retries), json!("2"));

    // A setting without a field stays when a field changes.
    let chart = browser.value(YOURS);
    browser.tab_to("retry.max_retries");
    browser.type_over("0");
    browser.wait_for_change(YOURS, chart.as_str().unwrap());
    let kept = "[retry]\nmax_retries = 0\n\n[retry.status]\n404 = \"conditional\"\n";
    assert_eq!(browser.copy("copy-toml"), kept);

    browser.tab_to("defaults");
    browser.press("Enter");
    browser.wait_for_change(TITLE, &title);
    browser.wait_for(retries, "5");
    let rows = "document.querySelectorAll('#charts tbody tr').length";
    browser.wait_until(rows, |it| *it == json!(3));
    assert_eq!(
        browser.copy("copy-toml"),
        "# All settings have their defaults.\n"
    );

    // A bad text changes nothing, and its error has the line.
    browser.tab_to("settings-toml");
    browser.type_over("[retry]\nbase = '1s'");
    browser.tab_to("use-settings");
    browser.press("Enter");
    let (problem, _) = browser.wait_for_change(PROBLEM, "");
    assert!(problem.starts_with("retry.base is unknown"), "{problem}");
    assert_eq!(browser.value(retries), json!("5"));
}

/// A browser that forbids the clipboard gets the text selected, in open details.
#[test]
fn without_a_clipboard_the_text_is_selected() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    browser.open(&server.url(), 1280, Scheme::Light);
    browser.wait_for_change(TITLE, "");
    browser.value("navigator.clipboard.writeText = () => Promise.reject(new Error('forbidden'))");
    browser.tab_to("copy-rust");
    browser.press("Enter");
    let selected = "document.getSelection().toString()";
    let (text, _) = browser.wait_for_change(selected, "");
    assert!(text.starts_with("use reqwest_steady::"), "{text}");
    let status = browser.value("document.getElementById('status').textContent");
    assert_eq!(
        status,
        json!("The text is selected: copy it with the keyboard.")
    );
}
