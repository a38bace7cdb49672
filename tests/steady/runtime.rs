//! Runtimes without timers, and calls without a runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use reqwest_middleware::{ClientWithMiddleware, Error, Middleware};
use reqwest_steady::{
    CoalesceMiddleware, ConfigError, RetryMiddleware, SteadyError, ThrottleMiddleware,
};
use tokio::runtime::Builder;

use crate::support::scripted::{Server, URL};

fn each() -> Vec<Arc<dyn Middleware>> {
    vec![
        Arc::new(RetryMiddleware::default()),
        Arc::new(ThrottleMiddleware::default()),
        Arc::new(CoalesceMiddleware::default()),
    ]
}

async fn status(client: &ClientWithMiddleware) -> reqwest_middleware::Result<u16> {
    Ok(client.get(URL).send().await?.status().as_u16())
}

fn message(error: Error) -> String {
    match &error {
        Error::Middleware(error) => {
            let own = error.downcast_ref::<SteadyError>().unwrap();
            assert!(own.is_config() && own.invalid().is_some_and(|it| it.is::<ConfigError>()));
        }
        Error::Reqwest(error) => panic!("not an error of this crate: {error}"),
    }
    error.to_string()
}

#[test]
fn without_timers_the_first_call_says_so() {
    for middleware in each() {
        let server = Server::statuses([200]);
        let client = server.client_behind([middleware]);
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        for _ in 0..2 {
            let error = runtime.block_on(status(&client)).unwrap_err();
            assert_eq!(
                message(error),
                "not sent to api.example.com: tokio runtime (without timers) should be built with `enable_time` or `enable_all`, \
                 because retries and queues need timers"
            );
        }
        assert_eq!(server.count(), 0);
        // A middleware is not bound to the runtime of its first call.
        let whole = Builder::new_current_thread().enable_all().build().unwrap();
        for _ in 0..2 {
            assert_eq!(whole.block_on(status(&client)).unwrap(), 200);
        }
        assert_eq!(server.count(), 2);
    }
}

#[test]
fn without_a_runtime_the_first_call_says_so() {
    for middleware in each() {
        let server = Server::statuses([200]);
        let client = server.client_behind([middleware]);
        let call = pin!(status(&client));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(result) = call.poll(&mut context) else {
            panic!("the call should not wait");
        };
        assert_eq!(
            message(result.unwrap_err()),
            "not sent to api.example.com: tokio runtime (missing) is required for every call: use `#[tokio::main]`, \
             `Runtime::block_on` or `Handle::enter`"
        );
        assert_eq!(server.count(), 0);
    }
}
