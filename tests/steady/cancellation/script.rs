//! The scripted server, and a record of its responses.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use reqwest::{Body, Request};
use reqwest_steady::testing::ScriptedServer;

use crate::support::scripted::{Reply, dripping, late, respond, respond_with};
use crate::support::stacks::MS;

/// Duration of every response.
pub(super) const RESPONSE_TIME: Duration = Duration::from_millis(20);

/// Names the caller of a request. Requests that differ only in tracing headers are still coalesced.
pub(super) const CALLER: &str = "traceparent";

/// The attempt number.
pub(super) const ATTEMPT: &str = "x-attempt";

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    Status(u16),
    /// 429 with a pause in seconds.
    Pause(u32),
    /// 503 of a server that limits its rate. With an empty budget, its retry waits in line.
    Limited,
    /// A body in this many parts, 10 ms apart.
    Drips(u16, usize),
    /// 200 with a body that breaks off.
    Breaks,
    Reset,
    Silence,
    /// 200 after this many milliseconds.
    Slow(u32),
}

impl Action {
    fn reply(self) -> Reply {
        let reply = match self {
            Self::Status(status) => respond(status),
            Self::Limited => respond(503),
            Self::Pause(seconds) => respond_with(429, &[("retry-after", &seconds.to_string())]),
            Self::Drips(status, drops) => dripping(status, drops),
            Self::Breaks => Reply::status(200).body(broken()),
            Self::Reset => Reply::fail(io::ErrorKind::ConnectionReset),
            Self::Silence => Reply::silence(),
            Self::Slow(millis) => return late(millis * MS, respond(200)),
        };
        late(RESPONSE_TIME, reply)
    }
}

fn broken() -> Body {
    let parts = stream::iter([Ok("part"), Err(io::ErrorKind::ConnectionReset)]);
    Body::wrap_stream(parts.then(|part| async move {
        tokio::time::sleep(10 * MS).await;
        part.map_err(io::Error::from)
    }))
}

/// One request and its response.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) caller: String,
    pub(super) path: String,
    is_retry: bool,
    action: Action,
}

/// All requests and responses, in order.
#[derive(Clone, Default)]
pub(super) struct Record(Arc<Mutex<Vec<Served>>>);

impl Record {
    pub(super) fn all(&self) -> Vec<Served> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn of(&self, caller: &str) -> usize {
        self.all().iter().filter(|it| it.caller == caller).count()
    }

    /// How many retries all callers or one caller sent, and how many of these the budget pays for. Retries
    /// after a 429 are free because the throttle keeps the pause, and those in line because of a success.
    pub(super) fn retries(&self, caller: Option<&str>) -> (usize, usize) {
        let (mut sent, mut paid) = (0, 0);
        let mut last = HashMap::new();
        for served in self.all() {
            if caller.is_some_and(|caller| caller != served.caller) {
                continue;
            }
            let call = (served.caller, served.path);
            let before = last.insert(call, served.action);
            if served.is_retry {
                sent += 1;
                let is_free = matches!(before, Some(Action::Pause(_) | Action::Limited));
                paid += usize::from(!is_free);
            }
        }
        (sent, paid)
    }
}

/// A server whose responses depend on the path and on the number of earlier requests for it.
pub(super) fn server(
    script: impl Fn(&str, usize) -> Action + Send + Sync + 'static,
) -> (Arc<ScriptedServer>, Record) {
    let record = Record::default();
    let kept = record.clone();
    let server = ScriptedServer::by_request(move |request: &Request| {
        let path = request.url().path().to_owned();
        let header = |name| request.headers()[name].to_str().unwrap();
        let caller = header(CALLER).to_owned();
        let is_retry = header(ATTEMPT) != "1";
        let mut served = kept.0.lock().unwrap();
        let before = served.iter().filter(|it| it.path == path).count();
        let action = script(&path, before);
        served.push(Served {
            caller,
            path,
            is_retry,
            action,
        });
        action.reply()
    });
    (server, record)
}
