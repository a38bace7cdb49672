//! Waits for what a page shows. Every wait has a limit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Server;
use super::page::PROBLEM;
use crate::chromium::{Browser, Scheme};

/// No change of the page takes this long, even on a busy machine.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Browser {
    /// Waits until an expression has another value than this one. Returns it and the time that it took.
    #[track_caller]
    #[allow(clippy::disallowed_methods, reason = "it measures real time")]
    pub(super) fn wait_for_change(&mut self, expression: &str, old: &str) -> (String, Duration) {
        let started = Instant::now();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let value = self.wait_until(expression, |value| text(value) != old);
        (text(&value), started.elapsed())
    }

    /// Waits until an expression has this value.
    #[track_caller]
    pub(super) fn wait_for(&mut self, expression: &str, value: &str) {
        self.wait_until(expression, |it| it == value);
    }

    /// Waits until an expression has a value that is wanted, and returns it.
    #[track_caller]
    pub(super) fn wait_until(
        &mut self,
        expression: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        self.wait_within(LONGEST_WAIT, expression, wanted)
    }

    /// Fails after the limit, and says what it waited for.
    #[track_caller]
    #[allow(clippy::disallowed_methods, reason = "it measures real time")]
    fn wait_within(
        &mut self,
        limit: Duration,
        expression: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let started = Instant::now();
        loop {
            let value = self.value(expression);
            if wanted(&value) {
                return value;
            }
            let problem = self.value(PROBLEM);
            assert!(
                started.elapsed() < limit,
                "{expression} is still {value} after {limit:?}. The page says: {problem}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_wait_in_vain_ends_and_says_what_it_waited_for() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let server = Server::start();
    browser.open(&server.url(), 1280, Scheme::Light);
    let wait = || browser.wait_within(Duration::from_millis(50), "1 + 1", |it| *it == json!(3));
    let panic = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(
        message.starts_with("1 + 1 is still 2 after 50ms"),
        "{message}"
    );
}
