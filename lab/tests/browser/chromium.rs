//! Drives a headless Chromium through its debugging protocol.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// No command takes this long, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A temporary directory that is removed on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "steady-lab-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The scheme of colours that the reader prefers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    sent: u64,
    session: Option<String>,
    /// What the page complained about, and the addresses that it requested, since it was opened.
    complaints: Vec<String>,
    requested: Vec<String>,
    loaded: bool,
    _profile: Directory,
}

impl Browser {
    /// Starts a browser, or returns `None` if none works. Then the test is skipped.
    ///
    /// # Panics
    ///
    /// Panics if none works although one is required.
    pub(crate) fn start() -> Option<Self> {
        let found = BROWSERS.into_iter().find_map(Self::run);
        let required = std::env::var_os("STEADY_REQUIRE_BROWSER").is_some();
        assert!(found.is_some() || !required, "none of {BROWSERS:?} works");
        if found.is_none() {
            println!("skipped: none of {BROWSERS:?} works");
        }
        found
    }

    fn run(program: &str) -> Option<Self> {
        let profile = Directory::new();
        // The protocol runs over the file descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>&2",
                program,
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            // Resolves no names, so neither the page nor the browser itself can connect to anything else.
            .args([
                "--hide-scrollbars",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ])
            .arg(format!("--user-data-dir={}", profile.0.display()))
            .args(["--remote-debugging-pipe", "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let commands = process.stdin.take()?;
        let mut output = BufReader::new(process.stdout.take()?);
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output
                .read_until(0, &mut message)
                .is_ok_and(|length| length > 0)
            {
                message.pop();
                let value = serde_json::from_slice(&message).unwrap_or_default();
                message.clear();
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            process,
            commands,
            messages,
            sent: 0,
            session: None,
            complaints: Vec::new(),
            requested: Vec::new(),
            loaded: false,
            _profile: profile,
        };
        let targets = browser.try_call("Target.getTargets", json!({}))?;
        let page = targets["targetInfos"]
            .as_array()?
            .iter()
            .find(|it| it["type"] == "page")?;
        let attached = browser.try_call(
            "Target.attachToTarget",
            json!({ "targetId": page["targetId"], "flatten": true }),
        )?;
        browser.session = Some(attached["sessionId"].as_str()?.to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command and returns its result.
    #[track_caller]
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let result = self.try_call(method, parameters);
        result.unwrap_or_else(|| panic!("{method} failed"))
    }

    fn try_call(&mut self, method: &str, parameters: Value) -> Option<Value> {
        self.sent += 1;
        let id = self.sent;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands
            .write_all(format!("{command}\0").as_bytes())
            .ok()?;
        loop {
            let mut message = self.messages.recv_timeout(PATIENCE).ok()?;
            if message["id"] == json!(id) {
                if !message["error"].is_null() {
                    println!("{method}: {}", message["error"]);
                    return None;
                }
                return Some(message["result"].take());
            }
            self.note(&message);
        }
    }

    /// Keeps what an event says.
    fn note(&mut self, event: &Value) {
        let details = &event["params"];
        match event["method"].as_str() {
            Some("Log.entryAdded" | "Runtime.exceptionThrown" | "Runtime.consoleAPICalled") => {
                self.complaints.push(details.to_string());
            }
            Some("Network.requestWillBeSent") => {
                let url = details["request"]["url"].as_str().unwrap_or_default();
                self.requested.push(url.to_owned());
            }
            Some("Page.loadEventFired") => self.loaded = true,
            _ => {}
        }
    }

    /// Opens a page in a window of this width.
    pub(crate) fn open(&mut self, url: &str, width: u32, scheme: Scheme) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if scheme == Scheme::Dark {
            "dark"
        } else {
            "light"
        };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
        self.complaints.clear();
        self.requested.clear();
        self.loaded = false;
        self.call("Page.navigate", json!({ "url": url }));
        while !self.loaded {
            let event = self
                .messages
                .recv_timeout(PATIENCE)
                .expect("the page loads");
            self.note(&event);
        }
    }

    /// Opens a file in a window of this width.
    pub(crate) fn open_file(&mut self, file: &Path, width: u32, scheme: Scheme) {
        self.open(&format!("file://{}", file.display()), width, scheme);
    }

    /// Returns the value of an expression in the page. Waits for a promise.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", parameters);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].take()
    }

    /// Returns a list of texts that an expression makes in the page.
    #[track_caller]
    pub(crate) fn texts(&mut self, expression: &str) -> Vec<String> {
        let value = self.value(expression);
        let texts = value
            .as_array()
            .unwrap_or_else(|| panic!("{expression}: {value}"));
        texts
            .iter()
            .map(|text| text.as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns what the browser logged since the page was opened.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // A round trip, so that earlier events have arrived.
        self.value("0");
        std::mem::take(&mut self.complaints)
    }

    /// Returns the addresses that the page requested since it was opened.
    pub(crate) fn requested(&mut self) -> Vec<String> {
        self.value("0");
        std::mem::take(&mut self.requested)
    }

    /// Presses `Tab`, `Enter` or `ArrowDown`.
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "ArrowDown" => 40,
            _ => panic!("no key {key}"),
        };
        let mut event =
            json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
        if key == "Enter" {
            event["text"] = json!("\r");
        }
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Presses Ctrl+A.
    pub(crate) fn select_all(&mut self) {
        let event = json!({ "type": "keyDown", "key": "a", "code": "KeyA", "modifiers": 2, "commands": ["selectAll"] });
        self.call("Input.dispatchKeyEvent", event);
        let event = json!({ "type": "keyUp", "key": "a", "code": "KeyA", "modifiers": 2 });
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Types a text in place of the selection.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Allows the page to use the clipboard, as a person does who presses a button.
    pub(crate) fn allow_clipboard(&mut self) {
        let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
        self.call(
            "Browser.grantPermissions",
            json!({ "permissions": permissions }),
        );
    }

    /// Returns a picture of the page from its top, as PNG.
    pub(crate) fn screenshot(&mut self, width: u32, height: u32) -> Vec<u8> {
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let shot = self.call(
            "Page.captureScreenshot",
            json!({ "captureBeyondViewport": true, "clip": clip }),
        );
        BASE64_STANDARD
            .decode(shot["data"].as_str().unwrap())
            .unwrap()
    }

    /// Returns all colours of the first 1,600 lines of the page.
    pub(crate) fn colours(&mut self, width: u32) -> BTreeSet<[u8; 3]> {
        let png = self.screenshot(width, 1600);
        let mut reader = png::Decoder::new(std::io::Cursor::new(png))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let pixels = pixels[..info.buffer_size()].chunks(info.color_type.samples());
        pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
