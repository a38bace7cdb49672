//! Whole calls in a row, compared with a model of the loop.
//!
//! Checks the arrival of each request to the millisecond, the end of each call, and the budget after it. Some callers
//! drop the call before its end.

mod ending;
mod ledger;
mod model;
mod plan;
mod script;

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use arbitrary::Unstructured;
use http::Method;
use reqwest::{Body, Response};
use reqwest_middleware::{ClientWithMiddleware, Error};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use self::ending::Ending;
use self::model::{ExpectedAttempt, ExpectedCall, Model};
use self::plan::{Plan, PlannedCall};
use self::script::{ModelBody, Step, reply};
use super::{address, headers_of};
use crate::admit::Budget;
use crate::clock;
use crate::outcome::{ReportSlot, SteadyError};
use crate::request::RequestBuilderExt;
use crate::testing::{Received, ScriptedServer};

/// Calls behave as documented, whatever the server and the caller do.
pub fn sequences(data: &[u8]) {
    thread_local! {
        /// Its time is virtual, and continues from one execution to the next.
        static RUNTIME: Runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
    }
    if let Ok(plan) = Plan::of(&mut Unstructured::new(data)) {
        RUNTIME.with(|runtime| runtime.block_on(execute(&plan)));
    }
}

async fn execute(plan: &Plan) {
    let origin = clock::now();
    let budget_plan = plan.settings.budget_plan.as_ref();
    let budget = budget_plan.map_or_else(Budget::unlimited, plan::BudgetPlan::budget);
    let steps = plan.steps.clone();
    let server = ScriptedServer::new(move |before| match steps.get(before) {
        Some(step) => reply(step),
        None => reply(&Step::success()),
    });
    let client = server.client(plan.settings.retry(budget.clone()));
    let scope = plan.shared.as_ref().map(plan::Shared::scope);
    let mut model = Model::new(plan);
    for planned in &plan.calls {
        sleep(planned.pause_before).await;
        let (start, before) = (origin.elapsed(), server.count());
        let expected = model.call(planned, start);

        let slot = ReportSlot::new();
        let call = timeout(planned.patience, send(&client, planned, &slot));
        let result = match &scope {
            Some(scope) => scope.run(call).await,
            None => call.await,
        };
        let now = origin.elapsed();
        let received = &server.received()[before..];
        let arrivals: Vec<_> = received.iter().map(|request| request.at - origin).collect();
        assert_eq!(arrivals, expected.arrivals, "{planned:?} {plan:?}");
        check_requests(received, planned);
        match (result, expected.end) {
            (Err(_), None) => assert!(slot.get().is_none()),
            (Ok(result), Some((at, stop))) => {
                let report = slot.get().expect("every call that ends has a report");
                assert_eq!(
                    (report.stop_reason(), now),
                    (stop, at),
                    "{planned:?} {plan:?}"
                );
                let attempts: Vec<_> = report.attempts().collect();
                let agree = attempts.len() == expected.attempts.len()
                    && (attempts.iter().zip(&expected.attempts)).all(|(it, model)| {
                        it.sent_at() == model.sent_at
                            && it.waited() == model.waited
                            && it.hint() == model.hint
                            && it.outcome() == model.ending.outcome()
                    });
                assert!(agree, "{report:?} {expected:?} {plan:?}");
                check_result(result, &expected);
            }
            (result, _) => panic!("{result:?} {expected:?} {plan:?}"),
        }
        let balance = model.ledger.balance(now);
        let is_same = balance == budget.balance() || (balance - budget.balance()).abs() < 1e-9;
        assert!(is_same, "{budget:?}, not {balance}: {expected:?} {plan:?}");
    }
}

async fn send(
    client: &ClientWithMiddleware,
    planned: &PlannedCall,
    slot: &ReportSlot,
) -> reqwest_middleware::Result<Response> {
    let method = Method::from_bytes(planned.method.as_bytes()).unwrap();
    let mut request = client.request(method, address()).report_to(slot);
    if planned.key {
        request = request.idempotency_key("order-1");
    }
    if planned.idempotent {
        request = request.mark_idempotent();
    }
    if let Some(retries) = planned.max_retries {
        request = request.max_retries(retries);
    }
    if let Some(deadline) = planned.deadline {
        request = request.deadline(deadline);
    }
    if let Some(timeout) = planned.attempt_timeout {
        request = request.attempt_timeout(timeout);
    }
    if let Some(limit) = planned.buffer {
        request = request.buffer_response(limit);
    }
    request = match planned.stream {
        true => request.body(Body::wrap(String::from("stream"))),
        false => request.body("bytes"),
    };
    request.send().await
}

/// All attempts send the same request, except for the attempt number.
fn check_requests(received: &[Received], planned: &PlannedCall) {
    for (request, number) in received.iter().zip(1..) {
        assert_eq!((request.attempt, &request.url), (number, &address()));
        assert_eq!(request.method, planned.method);
        let body = request.body.as_deref();
        assert_eq!(body, (!planned.stream).then_some(&b"bytes"[..]));
        assert_eq!(
            headers_of(&request.headers, "attempt"),
            [&number.to_string()]
        );
        let keys = headers_of(&request.headers, "idempotency-key");
        assert!(
            keys.iter().copied().eq(planned.key.then_some("order-1")),
            "{keys:?}"
        );
    }
}

/// The caller gets the last response or error unchanged.
fn check_result(result: reqwest_middleware::Result<Response>, expected: &ExpectedCall) {
    let Some(ExpectedAttempt { ending, .. }) = expected.attempts.last() else {
        panic!("a call without an attempt");
    };
    match (result, ending) {
        (Ok(response), Ending::Response(model)) => {
            assert_eq!(response.status(), model.status);
            let lines = usize::from(model.hint.is_some()) + usize::from(model.directive.is_some());
            assert_eq!(response.headers().len(), lines);
            check_body(response, &model.body);
        }
        (Err(error), Ending::TimedOut(limit)) => {
            let exceeded = SteadyError::of(&error).and_then(SteadyError::exceeded);
            assert_eq!(exceeded, Some(*limit));
        }
        (Err(Error::Middleware(error)), Ending::Fail(kind)) => {
            let error = error.downcast_ref::<io::Error>().map(io::Error::kind);
            assert_eq!(error, Some(*kind));
        }
        (Err(Error::Reqwest(_)), Ending::CutOff) => {}
        (result, ending) => panic!("{result:?} after {ending:?}"),
    }
}

/// Reads the body without waiting. A late body is complete only if it was buffered.
fn check_body(response: Response, expected: &ModelBody) {
    let mut context = Context::from_waker(Waker::noop());
    match (pin!(response.bytes()).poll(&mut context), expected) {
        (Poll::Ready(Ok(body)), ModelBody::Whole) => assert_eq!(body, "whole"),
        (Poll::Ready(Ok(body)), ModelBody::Late(_)) => assert_eq!(body, "late"),
        (Poll::Pending | Poll::Ready(Err(_)), ModelBody::Late(_) | ModelBody::Cut(_)) => {}
        (read, expected) => panic!("{read:?} of {expected:?}"),
    }
}
