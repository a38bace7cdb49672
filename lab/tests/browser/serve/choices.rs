//! The scenarios and services that a reader can start from.

use serde_json::{Value, json};

use super::Server;
use crate::chromium::{Browser, Scheme};

/// The most requests that a run of a choice makes, of all four clients. It bounds the time until the charts change: no
/// time is tested, because a busy machine can be slow.
const MOST_REQUESTS: u64 = 60_000;

/// All choices, with the names that the page shows.
const CHOICES: [(&str, &str); 13] = [
    ("metastable", "An outage that never ends"),
    ("drain", "A backlog of a thousand"),
    ("herd", "A herd of 500"),
    ("fleet", "A fleet of small clients"),
    ("overload", "An overload"),
    ("blackout", "A blackout"),
    ("burst", "A burst of nine"),
    ("agents", "Agents with the same schedule"),
    ("small-api", "A small API"),
    ("outage", "An outage of 30 s"),
    ("github-like", "A quota per minute"),
    ("slow-model", "A slow model"),
    ("flaky", "A flaky service"),
];

/// Returns the values of a file by their path, as the form has them.
fn values(name: &str) -> Value {
    fn flatten(prefix: &str, table: &toml::Table, into: &mut serde_json::Map<String, Value>) {
        for (key, value) in table {
            let path = format!("{prefix}{key}");
            match value {
                toml::Value::Table(inner) => flatten(&format!("{path}."), inner, into),
                toml::Value::String(text) => drop(into.insert(path, json!(text))),
                other => drop(into.insert(path, json!(other.to_string()))),
            }
        }
    }
    let file = format!("{}/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).unwrap();
    let mut values = serde_json::Map::new();
    flatten("", &text.parse().unwrap(), &mut values);
    Value::Object(values)
}

#[test]
fn every_choice_runs_with_your_settings_in_bounded_work() {
    let server = Server::start();
    for (name, shown) in CHOICES {
        let (status, form) = server.post("/form", &json!({ "example": name }).to_string());
        assert_eq!(status, 200, "{form}");
        let field = format!("name=\"name\" value=\"{shown}\"");
        assert!(form["html"].as_str().unwrap().contains(&field), "{form}");
        let body = json!({ "service": values(name), "settings": { "retry.max_retries": "4" } });
        let (status, response) = server.post("/run", &body.to_string());
        assert_eq!(status, 200, "{name}: {response}");
        let html = response["html"].as_str().unwrap();
        assert!(
            html.contains(">your settings</span>") && html.contains(shown),
            "{name}: {html}"
        );
        let requests = response["requests"].as_u64().unwrap();
        println!(
            "{name}: {requests} requests in {} ms",
            response["milliseconds"]
        );
        assert!(
            (1..=MOST_REQUESTS).contains(&requests),
            "{name}: {requests}"
        );
    }
}

/// All calls fail, and your client retries without limits.
#[test]
fn a_run_stops_at_the_bound_of_requests() {
    let server = Server::start();
    let body = json!({
        "service": {
            "load.kind": "steady", "load.rate": "250/s", "load.duration": "20s", "load.clients": "500",
            "faults.outage.from": "0s", "faults.outage.to": "1h",
        },
        "settings": {
            "retry.max_retries": "1000", "retry.backoff.cap": "1s", "retry.retry_window": "10h",
            "retry.budget_per_host.ttl": "10s", "retry.budget_per_host.min_retries_per_sec": "100000",
            "throttle.adaptive": "false",
        },
    });
    let (status, response) = server.post("/run", &body.to_string());
    assert_eq!(status, 422, "{response}");
    let message = response["message"].as_str().unwrap();
    assert!(
        message.contains("it makes more than 100000 requests"),
        "{message}"
    );
}

#[test]
fn every_choice_of_the_page_shows_its_charts_and_conclusion() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    browser.open(&server.url(), 1280, Scheme::Light);
    let options =
        "[...document.querySelectorAll('#example option')].map(it => `${it.value}: ${it.label}`)";
    assert_eq!(
        browser.texts(options),
        CHOICES.map(|(name, shown)| format!("{name}: {shown}"))
    );
    let note = "document.getElementById('note').textContent";
    for (name, shown) in CHOICES {
        browser.value(&format!(
            "(it => {{ it.value = '{name}'; it.dispatchEvent(new Event('change')) }})(document.getElementById('example'))"
        ));
        browser.wait_for(
            "document.querySelector('#charts .topic')?.textContent",
            shown,
        );
        let note = browser.value(note);
        let conclusion = conclusion(name).unwrap_or_default();
        assert!(
            note.as_str().unwrap().contains(&conclusion),
            "{name}: {note}"
        );
        assert_eq!(note == json!(""), conclusion.is_empty(), "{name}: {note}");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Returns what the table of the lab concludes from a scenario, if there is one with this name.
fn conclusion(name: &str) -> Option<String> {
    let table = include_str!("../../../src/table.txt");
    let (_, rest) = table.split_once(&format!("\n{name}: "))?;
    Some(rest.lines().nth(1)?.to_owned())
}
