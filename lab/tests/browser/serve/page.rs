//! The page of `lab serve` in a browser: its form, its layout, and its service.

use serde_json::json;

use super::Server;
use crate::LAYOUT;
use crate::chromium::{Browser, Directory, Scheme};

pub(super) const TITLE: &str = "document.querySelector('#charts h2')?.textContent ?? ''";
pub(super) const PROBLEM: &str = "document.getElementById('problem').textContent";

impl Browser {
    /// Presses Tab until the control with this name or id has the focus. The summary of details has their id.
    #[track_caller]
    pub(super) fn tab_to(&mut self, wanted: &str) {
        for _ in 0..100 {
            self.press("Tab");
            let focused = self
                .value("(it => it.name || it.id || it.parentElement.id)(document.activeElement)");
            if focused == json!(wanted) {
                let visible = "getComputedStyle(document.activeElement).outlineStyle";
                assert_eq!(self.value(visible), json!("solid"), "{wanted}");
                return;
            }
        }
        panic!("Tab never reaches {wanted}");
    }

    /// Replaces the text of the control that has the focus: selects all, and types as one input.
    pub(super) fn type_over(&mut self, text: &str) {
        self.select_all();
        self.type_text(text);
    }

    /// Opens these details with the keyboard, unless they are open.
    #[track_caller]
    pub(super) fn open_details(&mut self, id: &str) {
        self.tab_to(id);
        let open = format!("document.getElementById('{id}').open");
        if self.value(&open) == json!(false) {
            self.press("Enter");
            assert_eq!(self.value(&open), json!(true), "{id}");
        }
    }

    /// Presses the button that copies, and returns what is in the clipboard then.
    #[track_caller]
    pub(super) fn copy(&mut self, button: &str) -> String {
        self.value("navigator.clipboard.writeText('nothing')");
        self.tab_to(button);
        self.press("Enter");
        let read = "navigator.clipboard.readText()";
        self.wait_for_change(read, "nothing").0
    }

    /// Returns the table of the page: the words of each row.
    pub(super) fn table(&mut self) -> Vec<String> {
        self.texts("[...document.querySelectorAll('#charts tbody tr')].map(row => [...row.cells].map(cell => cell.textContent).join(' '))")
    }
}

pub(super) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Chooses a service, changes three values, and runs the result with `lab try`. All with the keyboard.
#[test]
fn charts_follow_the_keyboard_and_lab_try_agrees() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    browser.open(&server.url(), 1280, Scheme::Light);
    let (first, _) = browser.wait_for_change(TITLE, "");
    assert!(
        first.contains("reqwest-steady, all calls succeed"),
        "{first}"
    );

    browser.allow_clipboard();
    browser.tab_to("example");
    browser.press("ArrowDown");
    let (mut title, _) = browser.wait_for_change(TITLE, &first);
    let name = browser.value("document.querySelector('#charts .topic').textContent");
    assert_eq!(name, json!("A backlog of a thousand"));
    browser.open_details("describe");
    for (field, text) in [
        ("limit.rate", "30/s"),
        ("faults.errors", "0.25"),
        ("load.calls", "120"),
    ] {
        browser.tab_to(field);
        browser.type_over(text);
        let (next, took) = browser.wait_for_change(TITLE, &title);
        // For a person to read. What a run computes is bounded, and only that is tested.
        println!("{field}: {took:?}");
        title = next;
    }
    // The last change may have come in several steps.
    let calls = "document.querySelector('#charts tbody tr td:nth-child(2)').textContent";
    browser.wait_for(calls, "120");
    browser.open_details("service-text");
    let description = browser.copy("copy");
    for line in ["rate = \"30/s\"", "errors = 0.25", "calls = 120"] {
        assert!(description.contains(line), "{description}");
    }

    // The same description gives the same table.
    let directory = Directory::new();
    let [file, page] = ["service.toml", "page.html"].map(|name| directory.file(name));
    std::fs::write(&file, &description).unwrap();
    let printed = crate::lab(&format!("try --service {}", file.display()), &page);
    let printed = words(&printed);
    for row in browser.table() {
        assert!(printed.contains(&words(&row)), "{row}: {printed}");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_pasted_description_fills_the_form() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    browser.open(&server.url(), 400, Scheme::Dark);
    let (first, _) = browser.wait_for_change(TITLE, "");
    let paste = |text: &str| format!("document.getElementById('toml').value = {}", json!(text));
    browser.open_details("describe");
    browser.open_details("service-text");
    browser.value(&paste(
        "name = 'Pasted'\nlimit = { kind = 'gcra', rate = '20/s', burst = 3 }",
    ));
    browser.tab_to("use");
    browser.press("Enter");
    browser.wait_for_change(TITLE, &first);
    let values = browser.texts("['name', 'limit.kind', 'limit.burst', 'load.rate'].map(name => document.querySelector(`[name='${name}']`).value)");
    assert_eq!(values, ["Pasted", "gcra", "3", "50/s"]);

    browser.value(&paste("limit = { kind = 'window', rate = '20' }"));
    browser.tab_to("use");
    browser.press("Enter");
    let (problem, _) = browser.wait_for_change(PROBLEM, "");
    assert!(
        problem.starts_with("limit.rate: invalid value \"20\": write a rate"),
        "{problem}"
    );
}

#[test]
fn a_wrong_value_is_named_and_the_charts_stay() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    browser.open(&server.url(), 1280, Scheme::Light);
    let (title, _) = browser.wait_for_change(TITLE, "");
    browser.open_details("describe");
    for (field, wrong, right, named) in [
        (
            "retry.max_retries",
            "many",
            "5",
            "retry.max_retries: invalid value \"many\": write a whole number",
        ),
        (
            "throttle.max_in_flight",
            "0",
            "1024",
            "throttle.max_in_flight (0) should be at least 1",
        ),
        (
            "throttle.rate.limit",
            "2000000/s",
            " ",
            "throttle.rate (2000000/s) should be between",
        ),
        (
            "latency",
            "2",
            "2ms",
            "latency: invalid value \"2\": write a duration",
        ),
        (
            "load.rate",
            "5000/s",
            "80/s",
            "load.rate: 300000 calls start, and this page runs at most 5000",
        ),
    ] {
        browser.tab_to(field);
        browser.type_over(wrong);
        browser.wait_until(PROBLEM, |it| it.as_str().unwrap().starts_with(named));
        let invalid =
            browser.texts("[...document.querySelectorAll('[aria-invalid]')].map(it => it.name)");
        assert_eq!(invalid, [field]);
        assert_eq!(browser.value(TITLE), json!(title), "the charts stay");
        browser.type_over(right);
        browser.wait_for(PROBLEM, "");
        let invalid =
            browser.texts("[...document.querySelectorAll('[aria-invalid]')].map(it => it.name)");
        assert_eq!(invalid, [""; 0]);
    }
}

#[test]
fn the_form_shows_only_what_the_kinds_have() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    browser.open(&server.url(), 1280, Scheme::Light);
    browser.wait_for_change(TITLE, "");
    browser.open_details("describe");
    let shown = "[...document.querySelectorAll('#fields .field')].filter(it => it.checkVisibility()).map(it => it.querySelector('input, select').name).filter(it => it.startsWith('limit'))";
    assert_eq!(browser.texts(shown), ["limit.kind", "limit.rate"]);
    let choose = |kind: &str| {
        format!(
            "(select => {{ select.value = '{kind}'; select.dispatchEvent(new Event('input', {{ bubbles: true }})) }})\
             (document.getElementsByName('limit.kind')[0])"
        )
    };
    browser.value(&choose("concurrency"));
    let all = [
        "limit.kind",
        "limit.at_once",
        "limit.work",
        "limit.status",
        "limit.hint",
    ];
    assert_eq!(browser.texts(shown), all);
    browser.value(&choose("none"));
    assert_eq!(browser.texts(shown), ["limit.kind"]);
}

/// Set it to a folder to look at the pages.
const PICTURES: &str = "STEADY_LAB_PICTURES";

#[test]
fn the_served_page_has_no_layout_mistakes() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    for width in [400, 800, 1280] {
        for scheme in [Scheme::Light, Scheme::Dark] {
            for state in ["first", "changed", "open", "invalid"] {
                browser.open(&server.url(), width, scheme);
                let (title, _) = browser.wait_for_change(TITLE, "");
                if state != "first" {
                    browser.value(&set("retry.backoff.jitter", "additive"));
                    browser.value(&set("throttle.rate.limit", "40/s"));
                    browser.wait_for_change(TITLE, &title);
                }
                if state == "open" {
                    browser.value(
                        "document.querySelectorAll('details').forEach(it => it.open = true)",
                    );
                }
                if state == "invalid" {
                    browser.value("document.getElementById('yours').open = false");
                    browser.value(&set("throttle.max_queue_wait", "soon"));
                    browser.wait_for_change(PROBLEM, "");
                    // The page opens what is closed around the invalid value.
                    let open = browser.value("document.getElementById('yours').open");
                    assert_eq!(open, json!(true));
                }
                let wrong = browser.texts(LAYOUT);
                assert!(wrong.is_empty(), "{width}, {scheme:?}, {state}: {wrong:#?}");
                let complaints = browser.complaints();
                // The browser logs the status of the response to an invalid value.
                let of_status = |it: &&String| state == "invalid" && it.contains("422");
                let others = complaints.iter().filter(|it| !of_status(it));
                assert_eq!(others.count(), 0, "{complaints:?}");
                let requested = browser.requested();
                let own = server.url();
                let elsewhere = requested
                    .iter()
                    .filter(|url| !url.starts_with(&own) && !url.starts_with("data:"));
                assert_eq!(elsewhere.count(), 0, "{requested:?}");
                if let Some(folder) = std::env::var_os(PICTURES) {
                    let height = browser.value("document.documentElement.scrollHeight");
                    let height = height.as_u64().unwrap() as u32;
                    let file = format!("serve-{width}-{scheme:?}-{state}.png").to_lowercase();
                    let png = browser.screenshot(width, height);
                    std::fs::write(std::path::Path::new(&folder).join(file), png).unwrap();
                }
            }
        }
    }
}

/// Sets the value of a control, as a person does.
fn set(name: &str, value: &str) -> String {
    format!(
        "(it => {{ it.value = '{value}'; it.dispatchEvent(new Event('input', {{ bubbles: true }})) }})\
         (document.getElementsByName('{name}')[0])"
    )
}
