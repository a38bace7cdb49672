//! Reads the body of a response as a part of the attempt, to inspect or to buffer it.

use std::time::Duration;

use reqwest::Response;
use reqwest_middleware::Result;

use super::decision::Decision;
use super::{Call, ReadBodies};
use crate::clock;
use crate::decide::{
    BodyStart, BodyVerdict, ClassifiedOutcome, InspectRule, is_event_stream, matching_rule,
};
use crate::outcome::{Effect, RetryReport};
use crate::response::{self, BodyReader, Extent, FirstEvent, expected_length};
use crate::schedule::Limit;

/// An inspected attempt: the outcome after the verdict, the response with all its bytes or the error that ended its
/// body, and the verdict itself.
type Inspected = (ClassifiedOutcome, Result<Response>, Option<BodyVerdict>);

impl<'a> Call<'a> {
    /// Returns whether a rule looks at the body of the response.
    pub(crate) fn inspects(&self, outcome: ClassifiedOutcome, result: &Result<Response>) -> bool {
        self.own_rule(result).is_some() || self.preset_rule(outcome, result).is_some()
    }

    fn own_rule(&self, result: &Result<Response>) -> Option<&'a InspectRule> {
        self.matching_rule(&self.config.inspect, result)
    }

    /// `None` if the user chose the class of the outcome.
    fn preset_rule(
        &self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
    ) -> Option<&'a InspectRule> {
        let rule = self.matching_rule(&self.config.inspect_by_preset, result);
        rule.filter(|_| !outcome.by_user)
    }

    fn matching_rule(
        &self,
        rules: &'a [InspectRule],
        result: &Result<Response>,
    ) -> Option<&'a InspectRule> {
        if rules.is_empty() || self.reads == ReadBodies::None {
            return None;
        }
        let response = result.as_ref().ok()?;
        matching_rule(rules, response.status(), response.headers(), self.is_safe)
    }

    /// Asks the user's rule about the beginning of the body, and then the preset's if it had nothing to say.
    pub(crate) async fn inspect_body(
        &mut self,
        mut outcome: ClassifiedOutcome,
        mut result: Result<Response>,
    ) -> Inspected {
        let mut verdict = None;
        if let Some(rule) = self.own_rule(&result) {
            (outcome, result, verdict) = self.ask(rule, outcome, result).await;
        }
        match self.preset_rule(outcome, &result) {
            Some(rule) if verdict.is_none() => self.ask(rule, outcome, result).await,
            _ => (outcome, result, verdict),
        }
    }

    /// Reads the beginning of the body, and asks the rule about it.
    ///
    /// If the body breaks off or the attempt's time is over, a response below 400 becomes a failed attempt. With a 4xx
    /// or 5xx, the rule judges what has arrived, because the status already says that the request failed.
    async fn ask(
        &mut self,
        rule: &InspectRule,
        mut outcome: ClassifiedOutcome,
        result: Result<Response>,
    ) -> Inspected {
        let response = match result {
            Ok(response) => response,
            Err(_) => return (outcome, result, None),
        };
        let fails = response.status().as_u16() < 400;
        let limit = rule.what.max_bytes();
        let mut event = is_event_stream(response.headers()).then(FirstEvent::default);
        let expected = expected_length(&response);
        let mut reader = BodyReader::new(response, expected);
        let reading = reader.read_until(|length, chunk| {
            length >= limit || event.as_mut().is_some_and(|event| event.read(chunk))
        });
        let own_end = clock::after(clock::now(), rule.what.max_time());
        let attempt_limit = self.body_limit().filter(|it| it.end() <= own_end);
        let end = attempt_limit.map_or(own_end, |it| it.end());
        let read = match (clock::within(end, reading).await, attempt_limit) {
            (Some(Ok(extent)), _) => Ok(extent),
            (Some(Err(error)), _) => Err(error),
            (None, Some(over)) if fails => Err(over.error()),
            (None, _) => Ok(Extent::Part),
        };
        let start = reader.start(limit);
        let is_complete = match read {
            Ok(Extent::Whole) => true,
            Ok(Extent::Part) => reader.is_at_end() && start.len() == reader.len(),
            Err(_) => false,
        };
        let mut result = match read {
            Ok(Extent::Whole) => Ok(reader.into_buffered().into_response()),
            Ok(Extent::Part) => Ok(reader.into_stream()),
            Err(error) if fails => {
                let result = Err(error);
                return (self.classify_broken(outcome, &result), result, None);
            }
            Err(error) => Ok(reader.into_broken(error)),
        };
        let start = BodyStart {
            bytes: &start,
            is_complete,
        };
        let record = (self.record.as_ref()).expect("a call with rules has a record");
        let target = record.request.target();
        let verdict = rule.apply(&mut outcome, &result, self.attempt, target, &start);
        if verdict.is_some() {
            doubt_inner(&mut result);
        }
        (outcome, result, verdict)
    }

    /// Returns whether a final response is buffered, so that its body is a part of the attempt.
    pub(crate) fn buffers(&self) -> bool {
        self.buffer().is_some()
    }

    /// Returns how many bytes of a final response are buffered. `None` if it is not buffered.
    fn buffer(&self) -> Option<usize> {
        self.options
            .as_ref()?
            .buffer
            .filter(|_| self.reads != ReadBodies::None)
    }

    /// Reads the body of a final response into memory. If that fails, the attempt has failed, so this decides again.
    pub(crate) async fn read_body(
        &mut self,
        decision: Decision,
        verdict: Option<BodyVerdict>,
        result: Result<Response>,
    ) -> (Decision, Result<Response>) {
        let limit = self.buffer().unwrap_or_default();
        let read = async { response::buffer(result?, limit).await };
        let result = match self.body_limit() {
            None => read.await,
            Some(limit) => limit.enforce(read).await,
        };
        if result.is_ok() {
            return (decision, result);
        }
        let outcome = self.classify_broken(decision.outcome(), &result);
        (self.decide(outcome, verdict, &result).await, result)
    }

    /// Returns the time limit of the attempt, without its time in a throttle's queue.
    fn body_limit(&self) -> Option<Limit> {
        let queued = self.visit.map_or(Duration::ZERO, |visit| visit.waited);
        let start = clock::after(self.attempt_start(), queued);
        self.time.attempt_limit(start)
    }

    /// Classifies an attempt whose body could not be read. `outcome` is that of its headers.
    fn classify_broken(
        &mut self,
        outcome: ClassifiedOutcome,
        result: &Result<Response>,
    ) -> ClassifiedOutcome {
        self.ended = self.now();
        ClassifiedOutcome {
            // The response had begun, so the request was processed.
            unsent: false,
            effect: outcome.effect,
            ..self.classify(result)
        }
    }
}

/// Takes back the effect that an inner retry concluded from the status, because the body may contradict it.
fn doubt_inner(result: &mut Result<Response>) {
    let extensions = result.as_mut().ok().map(Response::extensions_mut);
    if let Some(inner) = extensions.and_then(|it| it.get_mut::<RetryReport>()) {
        if inner.last.effect == Effect::Happened {
            inner.last.effect = Effect::Unknown;
        }
    }
}
