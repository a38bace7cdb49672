//! Situations in which a call can be dropped.

use std::time::Duration;

use reqwest_middleware::RequestBuilder;
use reqwest_steady::{BodyVerdict, Inspect, RequestBuilderExt};

use super::script::Action::{self, Breaks, Drips, Limited, Pause, Reset, Silence, Slow, Status};
use super::stack::Setup;
use crate::support::stacks::MS;

/// One call that is dropped, and the calls and settings around it.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) setup: Setup,
    /// From the path and the number of earlier requests for it.
    pub(super) script: fn(&str, usize) -> Action,
    pub(super) path: &'static str,
    pub(super) request: fn(RequestBuilder) -> RequestBuilder,
    /// The call starts this many milliseconds after the scenario.
    pub(super) begins: u32,
    /// Other calls: when they start, and their paths.
    pub(super) others: &'static [(u32, &'static str)],
    /// How many of the other calls end with an error. These come first.
    pub(super) failing: usize,
    /// How much longer any call may take because of random delays.
    pub(super) chance: Duration,
    /// The least number of points at which the call waits.
    pub(super) points: usize,
}

const PLAIN: Scenario = Scenario {
    name: "an immediate response",
    setup: Setup {
        retry: |retry| retry,
        throttle: |throttle| throttle,
        nested: false,
        empty_budget: false,
        no_throttle: false,
    },
    script: |_, _| Status(200),
    path: "/own",
    request: |request| request,
    begins: 0,
    others: &[],
    failing: 0,
    chance: Duration::ZERO,
    points: 1,
};

pub(super) const SCENARIOS: [Scenario; 17] = [
    PLAIN,
    Scenario {
        name: "responses to drain, and waits between them",
        script: |path, before| match (path, before) {
            ("/own", 0) => Drips(503, 4),
            ("/own", 1) => Status(503),
            ("/own", 2) => Reset,
            _ => Status(200),
        },
        points: 10,
        ..PLAIN
    },
    Scenario {
        name: "the server asks for a pause",
        script: |path, before| match (path, before) {
            ("/own", 0) => Pause(1),
            ("/own", 1) => Pause(2),
            ("/own", 2) => Pause(1),
            _ => Status(200),
        },
        points: 7,
        ..PLAIN
    },
    Scenario {
        name: "a launch delay, and attempts with a time limit",
        setup: Setup {
            retry: |retry| retry.launch_spread(40 * MS).attempt_timeout(100 * MS),
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            ("/own", 0) => Silence,
            ("/own", 1) => Status(503),
            _ => Status(200),
        },
        chance: Duration::from_millis(40),
        points: 6,
        ..PLAIN
    },
    Scenario {
        name: "a deadline",
        script: |path, _| match path {
            "/own" => Drips(503, 2),
            _ => Status(200),
        },
        request: |request| request.deadline(800 * MS),
        points: 15,
        ..PLAIN
    },
    Scenario {
        name: "a buffered body that breaks off and is retried",
        script: |path, before| match (path, before) {
            ("/own", 0 | 1) => Breaks,
            ("/own", _) => Drips(200, 4),
            _ => Status(200),
        },
        request: |request| request.buffer_response(1000),
        points: 12,
        ..PLAIN
    },
    Scenario {
        name: "bodies that are inspected, retried or broken off",
        setup: Setup {
            retry: |retry| {
                retry.inspect_body(Inspect::all(), |attempt, _| {
                    let is_first = attempt.url().path() == "/own" && attempt.attempt() == 1;
                    is_first.then(BodyVerdict::conditional)
                })
            },
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            ("/own", 0) => Drips(200, 3),
            ("/own", 1) => Breaks,
            ("/own", _) => Drips(200, 4),
            _ => Status(200),
        },
        points: 14,
        ..PLAIN
    },
    Scenario {
        name: "in the queue, between other calls",
        setup: Setup {
            throttle: |throttle| throttle.adaptive(false).max_in_flight(1),
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            ("/own", 0) => Status(503),
            ("/own", _) => Status(200),
            ("/fresh", _) => Status(200),
            _ => Slow(200),
        },
        begins: 10,
        others: &[(0, "/1"), (5, "/2"), (15, "/3"), (220, "/4")],
        points: 5,
        ..PLAIN
    },
    Scenario {
        name: "in the queue of a fixed rate",
        setup: Setup {
            throttle: |throttle| throttle.rate(10.0, 1),
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            ("/own", 0) => Status(503),
            _ => Status(200),
        },
        begins: 10,
        others: &[(0, "/1"), (15, "/2"), (20, "/3")],
        points: 6,
        ..PLAIN
    },
    Scenario {
        name: "a retry that is refused after waiting in the queue",
        setup: Setup {
            throttle: |throttle| {
                throttle
                    .adaptive(false)
                    .max_in_flight(1)
                    .max_queue_wait(30 * MS)
            },
            ..PLAIN.setup
        },
        script: |path, _| match path {
            "/own" => Drips(503, 2),
            "/fresh" => Status(200),
            _ => Slow(500),
        },
        others: &[(40, "/1")],
        points: 6,
        ..PLAIN
    },
    Scenario {
        name: "a leader with followers",
        script: |path, before| match (path, before) {
            ("/shared", 0) => Status(503),
            ("/shared", _) => Drips(200, 3),
            _ => Status(200),
        },
        path: "/shared",
        others: &[(5, "/shared"), (10, "/shared"), (95, "/shared")],
        points: 6,
        ..PLAIN
    },
    Scenario {
        name: "a follower that becomes the leader",
        setup: Setup {
            retry: |retry| retry.max_retries(1),
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            ("/shared", 0..2) => Reset,
            ("/shared", 2) => Status(503),
            ("/shared", _) => Drips(200, 3),
            _ => Status(200),
        },
        path: "/shared",
        begins: 5,
        others: &[(0, "/shared"), (10, "/shared"), (15, "/shared")],
        failing: 1,
        points: 7,
        ..PLAIN
    },
    Scenario {
        name: "a leader in the queue, with followers",
        setup: Setup {
            throttle: |throttle| throttle.max_in_flight(1),
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            ("/shared", 0) => Drips(503, 2),
            ("/shared", _) => Drips(200, 3),
            ("/fresh", _) => Status(200),
            _ => Slow(200),
        },
        path: "/shared",
        begins: 10,
        others: &[(0, "/1"), (15, "/shared"), (20, "/2"), (25, "/shared")],
        points: 14,
        ..PLAIN
    },
    Scenario {
        name: "a letter is written",
        setup: Setup {
            retry: |retry| retry.max_retries(2),
            ..PLAIN.setup
        },
        script: |path, _| match path {
            "/own" => Status(503),
            _ => Status(200),
        },
        points: 5,
        ..PLAIN
    },
    Scenario {
        name: "a nested call, which is retried as well",
        setup: Setup {
            nested: true,
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            ("/token", 0 | 1) => Status(503),
            ("/token", 3) => Reset,
            ("/own", 0) => Drips(503, 2),
            _ => Status(200),
        },
        points: 12,
        ..PLAIN
    },
    Scenario {
        name: "in line for an empty budget, between other calls",
        setup: Setup {
            empty_budget: true,
            no_throttle: true,
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            ("/own" | "/1" | "/2", 0) => Pause(0),
            ("/own", 1) => Pause(0),
            _ => Status(200),
        },
        begins: 5,
        // The last two succeed at once and release the first in line.
        others: &[(0, "/1"), (10, "/2"), (300, "/3"), (600, "/4")],
        points: 12,
        ..PLAIN
    },
    Scenario {
        name: "in line after the 503 of a limiter, behind a throttle",
        setup: Setup {
            empty_budget: true,
            ..PLAIN.setup
        },
        script: |path, before| match (path, before) {
            // From here on, the throttle has a pace.
            ("/1", 0) => Pause(0),
            ("/own", 0 | 1) => Limited,
            ("/2", 0) => Limited,
            _ => Status(200),
        },
        begins: 300,
        // The last two succeed at once and release the first in line.
        others: &[(0, "/1"), (310, "/2"), (600, "/3"), (1000, "/4")],
        points: 8,
        ..PLAIN
    },
];
