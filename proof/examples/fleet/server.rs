//! A server with a quota, which records when each request arrives.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::RETRY_AFTER;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// The header that identifies the worker.
pub(crate) const WORKER: &str = "x-worker";

/// A token bucket: a rate per second, and a burst after an idle time.
#[derive(Clone, Copy)]
pub(crate) struct Quota {
    pub(crate) per_second: f64,
    pub(crate) burst: f64,
}

/// One request, as the server saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The time since the server started.
    pub(crate) at: Duration,
    #[allow(dead_code, reason = "the example does not use it")]
    pub(crate) worker: usize,
    pub(crate) accepted: bool,
}

/// The server. It ends on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    desk: Arc<Desk>,
    _runtime: Runtime,
}

/// Handles the requests.
struct Desk {
    born: Instant,
    room: Mutex<Room>,
}

struct Room {
    quota: Quota,
    level: f64,
    filled_at: Duration,
    arrivals: Vec<Arrival>,
    /// The worker whose next request gets a 429, and its `Retry-After` in seconds.
    to_hold: Option<(usize, u32)>,
    /// The time of that 429.
    held_at: Option<Duration>,
}

impl Server {
    pub(crate) fn start(quota: Quota) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let desk = Arc::new(Desk {
            born: Instant::now(),
            room: Mutex::new(Room {
                quota,
                level: quota.burst,
                filled_at: Duration::ZERO,
                arrivals: Vec::new(),
                to_hold: None,
                held_at: None,
            }),
        });
        runtime.spawn(accept(listener, desk.clone()));
        Ok(Self {
            address,
            desk,
            _runtime: runtime,
        })
    }

    /// The time since the server started.
    pub(crate) fn now(&self) -> Duration {
        self.desk.born.elapsed()
    }

    /// Returns all requests so far, in order of arrival.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.desk.room().arrivals.clone()
    }

    /// Responds to the next request of one worker with 429 and `Retry-After`, whatever the quota.
    #[allow(dead_code, reason = "the example does not use it")]
    pub(crate) fn hold(&self, worker: usize, seconds: u32) {
        let mut room = self.desk.room();
        room.to_hold = Some((worker, seconds));
        room.held_at = None;
    }

    /// Returns the time of that 429.
    #[allow(dead_code, reason = "the example does not use it")]
    pub(crate) fn held_at(&self) -> Option<Duration> {
        self.desk.room().held_at
    }
}

async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let desk = desk.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let response = desk.respond(&request);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

impl Desk {
    fn respond(&self, request: &Request<Incoming>) -> Response<String> {
        let worker = request.headers().get(WORKER);
        let worker = worker.and_then(|worker| worker.to_str().ok()?.parse().ok());
        let worker = worker.unwrap_or(usize::MAX);
        let mut room = self.room();
        // The time is read under the lock, so that times and order agree.
        let at = self.born.elapsed();
        let hold = room.to_hold.filter(|(held, _)| *held == worker);
        let accepted = hold.is_none() && room.accepts(at);
        room.arrivals.push(Arrival {
            at,
            worker,
            accepted,
        });
        let mut response = Response::new(String::new());
        if !accepted {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        if let Some((_, seconds)) = hold {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
            room.to_hold = None;
            room.held_at = Some(at);
        }
        response
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    fn accepts(&mut self, now: Duration) -> bool {
        let filled = (now - self.filled_at).as_secs_f64() * self.quota.per_second;
        self.level = (self.level + filled).min(self.quota.burst);
        self.filled_at = now;
        if self.level < 1.0 {
            return false;
        }
        self.level -= 1.0;
        true
    }
}
