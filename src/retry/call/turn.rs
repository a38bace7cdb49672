//! What comes after an attempt that is not simply a success: the rest of the loop, for calls that need it.

use std::pin::Pin;
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::Result;
use tokio::time::Instant;

use super::super::permit::RetryPermit;
use super::{Call, End, Retry, Step};
use crate::clock;
use crate::decide::ClassifiedOutcome;
use crate::outcome::StopReason;
use crate::response::{self, HeldResponse};

/// How a call goes on after an attempt.
pub(crate) enum Turn {
    /// It is sent again, now.
    Again(Request),
    /// It has come to this.
    Over(Result<Response>),
}

impl<'a> Call<'a> {
    /// What follows an attempt: another, once it is time for it; or the end, and the report.
    ///
    /// In one box, and out of the way of all the calls that end with their first answer.
    #[cold]
    pub(crate) fn go_on<'c>(
        &'c mut self,
        classified: ClassifiedOutcome,
        mut result: Result<Response>,
        extensions: &'c mut Extensions,
    ) -> Pin<Box<dyn Future<Output = Turn> + Send + 'c>> {
        Box::pin(async move {
            if self.pays_with_others(classified, &result) {
                Box::pin(self.pay_with_others()).await;
            }
            let mut step = self.next_step(classified, &result);
            if self.wants_body() && is_final(&step) {
                (step, result) = Box::pin(self.read_body(step, result)).await;
            }
            let end = match step {
                Ok(retry) if self.sends_again() => {
                    let wake = self.leave_attempt(&retry, &result, extensions);
                    let time = self.time;
                    let drain_end = time.drain_end(wake);
                    let throttled = retry.visit.is_some();
                    if throttled {
                        self.keep(result).read_ahead(drain_end).await;
                    } else {
                        response::drain(&mut result, drain_end).await;
                        drop(result);
                    }
                    tokio::time::sleep_until(wake).await;
                    return Turn::Again(self.begin_attempt(throttled, retry.permit, extensions));
                }
                Ok(retry) => self.rehearse(retry, &result),
                Err(end) => end,
            };
            if let Some(delivery) = self.report(end, &mut result, extensions) {
                delivery.await;
            }
            Turn::Over(result)
        })
    }

    /// Reads the body of the answer. If that fails, the attempt has failed.
    pub(crate) async fn read_body(
        &mut self,
        step: Step,
        result: Result<Response>,
    ) -> (Step, Result<Response>) {
        let limit = self.buffer().unwrap_or_default();
        let read = async { response::buffer(result?, limit).await };
        let queued = self.visit.map_or(Duration::ZERO, |visit| visit.waited);
        let sent_at = self.sent_at.saturating_add(queued);
        let result = match self.time.attempt_limit(sent_at) {
            None => read.await,
            Some(limit) => limit.enforce(read).await,
        };
        if result.is_ok() {
            return (step, result);
        }
        let classified = ClassifiedOutcome {
            // The answer had begun: whatever its end says, the request was processed.
            unsent: false,
            ..self.classify(&result)
        };
        if self.pays_with_others(classified, &result) {
            self.pay_with_others().await;
        }
        (self.next_step(classified, &result), result)
    }

    /// Whether retries are sent, and not only decided on.
    pub(crate) fn sends_again(&self) -> bool {
        !self.settings.dry_run
    }

    /// Ends the call where it would have been sent again.
    pub(crate) fn rehearse(&mut self, retry: Retry, result: &Result<Response>) -> End {
        self.tell_retry(&retry, result);
        // What others in this task may do is not touched.
        retry.permit.hold.spend();
        End {
            classified: retry.classified,
            reason: StopReason::DryRun,
            hint: retry.hint,
        }
    }

    /// Goes on from the attempt that has ended to the next, which is due at the time that this says.
    fn leave_attempt(
        &mut self,
        retry: &Retry,
        result: &Result<Response>,
        extensions: &mut Extensions,
    ) -> Instant {
        self.tell_retry(retry, result);
        let mut ended = self.ended_attempt(retry.classified, retry.hint);
        let inside = self.complete_attempt(&mut ended, result, extensions);
        let queued = self.queued();
        let earlier = self.made_earlier();
        earlier.history.extend(inside);
        earlier.history.push(ended);
        earlier.unclear |= retry.classified.may_have_taken_effect();
        earlier.unprocessed += u32::from(retry.classified.is_unprocessed());
        earlier.backoff = Some(retry.backoff);
        earlier.queued = queued;
        earlier.kept = None;
        self.waited = retry.wait;
        self.attempt = self.attempt.next();
        clock::after(retry.decided, retry.wait)
    }

    /// Puts aside what may still be wanted, if a throttle lets no other attempt through.
    fn keep(&mut self, result: Result<Response>) -> &mut HeldResponse {
        self.made_earlier().kept.insert(HeldResponse::new(result))
    }

    /// It is time: gives out what to send.
    fn begin_attempt(
        &mut self,
        throttled: bool,
        permit: RetryPermit,
        extensions: &mut Extensions,
    ) -> Request {
        self.sent_at = self.time.elapsed(clock::now());
        // Until the retry is sent, it is paid back if the call is dropped. Without a throttle, that
        // is now.
        if throttled {
            self.made_earlier().permit = Some(permit);
        } else {
            permit.spend();
        }
        let body = self.own.as_ref().and_then(|own| own.body.as_ref());
        let spare = (self.spare.as_mut()).expect("without a copy no retry is decided on");
        spare.restore(extensions);
        extensions.insert(self.attempt);
        spare.request(body)
    }
}

/// Whether an answer is final by itself. The body of one that is retried or given up is not worth waiting for.
fn is_final(step: &Step) -> bool {
    step.as_ref().is_err_and(|end| {
        matches!(end.reason, StopReason::Succeeded | StopReason::NotRetryable)
            && end.classified.status().is_some()
    })
}
