//! `lab serve` without a browser, and its page in one.

mod choices;
mod page;
mod runs;
mod settings;
mod waits;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

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
            "POST /run",
            r#"{"service":{},"settings":{"retry.max_retry":"5"}}"#,
            422,
            "retry.max_retry: no field has this name",
        ),
        (
            "POST /run",
            r#"{"service":{},"settings":{"retry.deadline":"0s"}}"#,
            422,
            r#""path":"retry.deadline""#,
        ),
        (
            "POST /run",
            r#"{"service":{},"other_settings":"retry ="}"#,
            422,
            "the settings without a field are not TOML",
        ),
        (
            "POST /form",
            r#"{"settings":"retry.max_retry = 5"}"#,
            422,
            "retry.max_retry is unknown: did you mean `max_retries`?",
        ),
        (
            "POST /form",
            r#"{"settings":"throttle.key_by = 'from_fn'"}"#,
            422,
            r#""path":"throttle.key_by""#,
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
