//! Bounds of one run, so that a change shows within a second and no run takes the machine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Extensions;
use lab::service::{Service, ServiceError};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

/// The most calls of one client in a table. 5,000 calls with 5 retries each take about 200 ms.
pub(super) const MOST_CALLS: usize = 5000;
const MOST_CLIENTS: usize = 500;
/// The most requests of all clients in a table together. In a release build, they take about 0.6 s.
const MOST_REQUESTS: usize = 100_000;
/// For slower builds and machines.
const LONGEST: Duration = Duration::from_secs(20);

/// Refuses a service that would take longer than a second.
pub(super) fn check(service: &Service) -> std::result::Result<(), ServiceError> {
    let (calls, clients) = (service.load.calls(), service.load.clients);
    let refused = |path: &str, what: String| {
        Err(ServiceError {
            path: path.to_owned(),
            message: format!("{what}. For more, use `lab try --service FILE`"),
        })
    };
    if calls > MOST_CALLS {
        let path = match service.load.kind {
            lab::service::LoadKind::Steady => "load.rate",
            _ => "load.calls",
        };
        return refused(
            path,
            format!("{calls} calls start, and this page runs at most {MOST_CALLS}"),
        );
    }
    if clients > MOST_CLIENTS {
        return refused(
            "load.clients",
            format!("{clients} clients are too many, and this page runs at most {MOST_CLIENTS}"),
        );
    }
    Ok(())
}

/// Counts the requests of a run, and stops it if there are too many or if it takes too long.
pub(crate) struct Bound {
    started: Instant,
    most_requests: usize,
    requests: AtomicUsize,
}

impl Bound {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            most_requests: MOST_REQUESTS,
            requests: AtomicUsize::new(0),
        }
    }

    /// Returns the requests of all clients so far.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Says which bound stopped the run.
    pub(super) fn exceeded(&self) -> Option<String> {
        (self.requests() > self.most_requests).then(|| {
            format!(
                "the run was stopped, because it makes more than {} requests or takes longer than {} s: \
                 write a smaller load or fewer retries",
                self.most_requests,
                LONGEST.as_secs()
            )
        })
    }

    #[allow(clippy::disallowed_methods, reason = "it limits real time")]
    fn is_exceeded(&self) -> bool {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if self.started.elapsed() > LONGEST {
            // From now on, every request is one too many.
            self.requests
                .fetch_max(self.most_requests + 1, Ordering::Relaxed);
        }
        requests > self.most_requests
    }
}

/// The last middleware before the service. It fails all requests of a run that was stopped, and no client retries its
/// error.
pub(crate) struct Bounded(pub(crate) Arc<Bound>);

#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run was stopped")
    }
}

impl std::error::Error for Stopped {}

#[async_trait::async_trait]
impl Middleware for Bounded {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        if self.0.is_exceeded() {
            return Err(Error::middleware(Stopped));
        }
        next.run(request, extensions).await
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "it limits real time")]
mod tests {
    use super::*;
    use crate::trial;

    const SMALL: &str = include_str!("../../examples/small-api.toml");

    fn requests(bound: Bound) -> (usize, bool) {
        let bound = Arc::new(bound);
        let service = Service::from_toml(SMALL).unwrap();
        let results = trial::compare(&service, 1, None, Some(&bound));
        let requests = results.runs.iter().map(|run| run.requests).sum();
        (requests, bound.exceeded().is_some())
    }

    #[test]
    fn a_run_ends_at_the_bound_of_requests() {
        let whole = Bound::new(Instant::now());
        let (all, exceeded) = requests(whole);
        assert!(all > 1000 && !exceeded, "{all}");
        let part = Bound {
            most_requests: 200,
            ..Bound::new(Instant::now())
        };
        assert_eq!(requests(part), (200, true));
    }

    #[test]
    fn a_run_ends_at_the_bound_of_time() {
        let late = Bound::new(Instant::now() - 2 * LONGEST);
        let (sent, exceeded) = requests(late);
        // The first request notices it.
        assert!(sent <= 1 && exceeded, "{sent}");
    }

    #[test]
    fn too_large_a_service_is_refused_with_another_way() {
        let refused = |text: &str| {
            check(&Service::from_toml(text).unwrap())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused("load = { kind = 'steady', rate = '100/s', duration = '51s' }"),
            "load.rate: 5100 calls start, and this page runs at most 5000. For more, use `lab try --service FILE`"
        );
        let calls = refused("load = { kind = 'bursts', calls = 600, every = '1s', times = 10 }");
        assert!(calls.starts_with("load.calls: 6000 calls"), "{calls}");
        let clients = refused("load = { kind = 'at-once', calls = 600, clients = 501 }");
        assert!(
            clients.starts_with("load.clients: 501 clients"),
            "{clients}"
        );
    }
}
