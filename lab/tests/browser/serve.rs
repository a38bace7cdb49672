//! `lab serve` in a browser and without.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::LAYOUT;
use crate::chromium::{Browser, Directory, Scheme};

/// A running server.
struct Server {
    process: Child,
    /// `127.0.0.1` with the port.
    host: String,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lab"))
            .args(["serve", "--port", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let host = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let host = host
            .unwrap_or_else(|| panic!("no address: {line}"))
            .to_owned();
        assert!(host.starts_with("127.0.0.1:"), "{host}");
        Self { process, host }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.host)
    }

    /// Sends these bytes and returns the whole response.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(request).unwrap();
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        String::from_utf8_lossy(&response).into_owned()
    }

    /// Sends a request with these headers. Returns the status and the whole response.
    fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut request = format!(
            "{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").unwrap();
        }
        let response = self.raw(format!("{request}\r\n{body}").as_bytes());
        let status = response
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (
            status.unwrap_or_else(|| panic!("no status: {response}")),
            response,
        )
    }

    /// Posts JSON. Returns the status and the JSON of the response.
    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let headers = [
            ("host", self.host.as_str()),
            ("content-type", "application/json"),
        ];
        let (status, response) = self.send(&format!("POST {path}"), &headers, body);
        let json = response.split("\r\n\r\n").nth(1).unwrap_or_default();
        (
            status,
            serde_json::from_str(json).unwrap_or_else(|_| panic!("no JSON: {response}")),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const TITLE: &str = "document.querySelector('#charts h2')?.textContent ?? ''";
const PROBLEM: &str = "document.getElementById('problem').textContent";

impl Browser {
    /// Waits until an expression has another value than this one. Returns it and the time that it took.
    #[track_caller]
    #[allow(clippy::disallowed_methods, reason = "it measures real time")]
    fn wait_for_change(&mut self, expression: &str, old: &str) -> (String, Duration) {
        let started = Instant::now();
        loop {
            let value = self
                .value(expression)
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if value != old {
                return (value, started.elapsed());
            }
            let problem = self.value(PROBLEM);
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{expression} is still {old:?}: {problem}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Presses Tab until the control with this name or id has the focus.
    #[track_caller]
    fn tab_to(&mut self, wanted: &str) {
        for _ in 0..60 {
            self.press("Tab");
            let focused = self.value("document.activeElement.name || document.activeElement.id");
            if focused == json!(wanted) {
                let visible = "getComputedStyle(document.activeElement).outlineStyle";
                assert_eq!(self.value(visible), json!("solid"), "{wanted}");
                return;
            }
        }
        panic!("Tab never reaches {wanted}");
    }

    /// Replaces the text of the control that has the focus: selects all, and types as one input.
    fn type_over(&mut self, text: &str) {
        self.select_all();
        self.type_text(text);
    }

    /// Returns the table of the page: the words of each row.
    fn table(&mut self) -> Vec<String> {
        self.texts("[...document.querySelectorAll('#charts tbody tr')].map(row => [...row.cells].map(cell => cell.textContent).join(' '))")
    }
}

fn words(text: &str) -> String {
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

    browser.tab_to("example");
    browser.press("ArrowDown");
    let (mut title, _) = browser.wait_for_change(TITLE, &first);
    let name = browser.value("document.querySelector('#charts .topic').textContent");
    assert_eq!(name, json!("A small API"));
    for (field, text) in [
        ("limit.rate", "30/s"),
        ("faults.errors", "0.25"),
        ("load.calls", "120"),
    ] {
        browser.tab_to(field);
        browser.type_over(text);
        let (next, took) = browser.wait_for_change(TITLE, &title);
        // In a release build it is a fraction of a second, on an idle machine.
        println!("{field}: {took:?}");
        assert!(took < Duration::from_secs(10), "{field}: {took:?}");
        title = next;
    }
    // The last change may have come in several steps.
    let calls = "document.querySelector('#charts tbody tr td:nth-child(2)').textContent";
    while browser.value(calls) != json!("120") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let description = browser.value("document.getElementById('toml').value");
    let description = description.as_str().unwrap();
    for line in ["rate = \"30/s\"", "errors = 0.25", "calls = 120"] {
        assert!(description.contains(line), "{description}");
    }

    // The same description gives the same table.
    let directory = Directory::new();
    let [file, page] = ["service.toml", "page.html"].map(|name| directory.file(name));
    std::fs::write(&file, description).unwrap();
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
    browser.value("document.querySelector('details').open = true");
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
    for (field, wrong, right, named) in [
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
        loop {
            let (problem, _) = browser.wait_for_change(PROBLEM, "");
            if problem.starts_with(named) {
                break;
            }
        }
        let invalid =
            browser.texts("[...document.querySelectorAll('[aria-invalid]')].map(it => it.name)");
        assert_eq!(invalid, [field]);
        assert_eq!(browser.value(TITLE), json!(title), "the charts stay");
        browser.type_over(right);
        while browser.value(PROBLEM) != json!("") {
            std::thread::sleep(Duration::from_millis(20));
        }
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

#[test]
fn the_served_page_has_no_layout_mistakes() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    for width in [400, 800, 1280] {
        for scheme in [Scheme::Light, Scheme::Dark] {
            browser.open(&server.url(), width, scheme);
            browser.wait_for_change(TITLE, "");
            browser.value("document.querySelector('details').open = true");
            let wrong = browser.texts(LAYOUT);
            assert!(wrong.is_empty(), "{width}, {scheme:?}: {wrong:#?}");
            assert_eq!(browser.complaints(), [""; 0]);
            let requested = browser.requested();
            let own = server.url();
            let elsewhere = requested
                .iter()
                .filter(|url| !url.starts_with(&own) && !url.starts_with("data:"));
            assert_eq!(elsewhere.count(), 0, "{requested:?}");
        }
    }
}

#[test]
fn only_pages_of_the_server_itself_can_use_it() {
    let server = Server::start();
    let run = r#"{"service":{"load.kind":"at-once","load.calls":"5"}}"#;
    let json = ("content-type", "application/json");
    let own = server.host.as_str();
    let port = own.split(':').nth(1).unwrap();
    let localhost = format!("localhost:{port}");
    let origin = format!("http://{own}");
    for (headers, expected) in [
        (vec![("host", own), json], 200),
        (vec![("host", localhost.as_str()), json], 200),
        (vec![("host", own), ("origin", origin.as_str()), json], 200),
        (vec![("host", "elsewhere.example"), json], 403),
        (vec![("host", "127.0.0.1"), json], 403),
        (vec![json], 403),
        (
            vec![("host", own), ("origin", "http://elsewhere.example"), json],
            403,
        ),
        (vec![("host", own), ("origin", "null"), json], 403),
        // A form of another site can send this without asking first.
        (vec![("host", own), ("content-type", "text/plain")], 415),
        (vec![("host", own)], 415),
    ] {
        let (status, response) = server.send("POST /run", &headers, run);
        assert_eq!(status, expected, "{headers:?}: {response}");
    }
    assert_eq!(
        server.send("GET /", &[("host", "elsewhere.example")], "").0,
        403
    );
}

#[test]
fn the_page_may_load_nothing_and_every_nonce_differs() {
    let server = Server::start();
    let get = || {
        let (status, response) = server.send("GET /", &[("host", server.host.as_str())], "");
        assert_eq!(status, 200);
        let policy = response
            .lines()
            .find(|line| line.starts_with("content-security-policy: "));
        let policy = policy.unwrap().to_owned();
        let nonce = policy
            .split("'nonce-")
            .nth(1)
            .unwrap()
            .split('\'')
            .next()
            .unwrap()
            .to_owned();
        (policy, nonce, response)
    };
    let (policy, nonce, response) = get();
    for part in [
        "default-src 'none'",
        "connect-src 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(response.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    for attribute in [" src=", " href=\"http", " style=", " onclick="] {
        assert!(!response.contains(attribute), "{attribute}");
    }
    for header in [
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "referrer-policy: no-referrer",
    ] {
        assert!(response.contains(header), "{header}");
    }
    assert_ne!(get().1, nonce);
}

#[test]
fn wrong_requests_get_a_status_and_a_reason() {
    let server = Server::start();
    let host = ("host", server.host.as_str());
    let json = ("content-type", "application/json");
    let large = format!("{{\"service\":{{\"name\":\"{}\"}}}}", "x".repeat(70_000));
    for (line, body, expected, reason) in [
        ("GET /other", "", 404, "there is only /"),
        ("POST /", "", 405, "use GET /"),
        ("GET /run", "", 405, "use GET /"),
        ("POST /run", "{", 400, "not a request"),
        ("POST /run", "{}", 400, "missing field `service`"),
        (
            "POST /run",
            r#"{"service":{},"calls":5}"#,
            400,
            "unknown field `calls`",
        ),
        ("POST /run", &large, 413, "at most 65536 bytes"),
        (
            "POST /run",
            r#"{"service":{"speed":"5"}}"#,
            422,
            "speed: no field has this name",
        ),
        (
            "POST /run",
            r#"{"service":{"latency":"5"}}"#,
            422,
            "latency: invalid value",
        ),
        (
            "POST /form",
            r#"{"example":"none"}"#,
            404,
            "no example has the name",
        ),
        (
            "POST /form",
            r#"{"service":"latency ="}"#,
            422,
            "the text is not TOML",
        ),
    ] {
        let (status, response) = server.send(line, &[host, json], body);
        assert_eq!(status, expected, "{line}: {response}");
        assert!(response.contains(reason), "{line}: {response}");
    }
    // A body that does not arrive, and headers that do not end.
    let head = format!(
        "POST /run HTTP/1.1\r\nhost: {}\r\n{}: {}\r\n",
        server.host, json.0, json.1
    );
    let silent = server.raw(format!("{head}content-length: 99\r\n\r\n").as_bytes());
    assert!(silent.starts_with("HTTP/1.1 408"), "{silent}");
    let endless = server.raw(head.as_bytes());
    assert!(
        endless.is_empty() || endless.starts_with("HTTP/1.1 408"),
        "{endless}"
    );
}

#[test]
fn a_run_has_charts_toml_and_no_markup_of_the_caller() {
    let server = Server::start();
    let run = |name: &str, seed: u32| {
        let body = json!({ "service": { "name": name, "load.kind": "at-once", "load.calls": "5" }, "seed": seed });
        let (status, answer) = server.post("/run", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let answer = run("<img src=x onerror=alert(1)>", 7);
    let html = answer["html"].as_str().unwrap();
    assert!(
        html.contains("&lt;img src=x") && !html.contains("<img"),
        "{html}"
    );
    assert!(html.contains("seed 7"), "{html}");
    assert_eq!(
        answer["toml"],
        "name = \"<img src=x onerror=alert(1)>\"\n\n[load]\nkind = \"at-once\"\ncalls = 5\n"
    );
    assert!(answer["milliseconds"].is_u64());
    // The same run gives the same charts.
    assert_eq!(run("same", 3)["html"], run("same", 3)["html"]);
}

#[test]
fn many_runs_at_the_same_time_all_get_a_response() {
    let server = Server::start();
    let largest = r#"{"service":{"load.kind":"steady","load.rate":"100/s","load.duration":"50s",
        "faults.outage.from":"0s","faults.outage.to":"60s"}}"#;
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let posts = || server.post("/run", largest).0;
        let threads: Vec<_> = (0..12).map(|_| scope.spawn(posts)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)),
        "{statuses:?}"
    );
    assert_eq!(server.post("/run", r#"{"service":{}}"#).0, 200);
}
