//! What a call can be in the middle of when it is dropped.

use std::time::Duration;

use reqwest_middleware::RequestBuilder;
use reqwest_steady::RequestBuilderExt;

use super::script::Says::{self, Breaks, Drips, Pause, Reset, Silence, Slow, Status};
use super::stack::Setup;
use crate::support::stacks::MS;

/// One call that is dropped, and what is around it.
pub(super) struct World {
    pub(super) name: &'static str,
    pub(super) setup: Setup,
    /// By the path, and how many asked for it before.
    pub(super) script: fn(&str, usize) -> Says,
    pub(super) path: &'static str,
    pub(super) request: fn(RequestBuilder) -> RequestBuilder,
    /// It begins so many milliseconds later than the world.
    pub(super) begins: u32,
    /// Calls of others: when they begin, and what they ask for.
    pub(super) others: &'static [(u32, &'static str)],
    /// The first so many of them end with an error.
    pub(super) failing: usize,
    /// How much longer any call may take by chance.
    pub(super) chance: Duration,
    /// It waits at so many points at least.
    pub(super) points: usize,
}

const PLAIN: World = World {
    name: "answered at once",
    setup: Setup {
        retry: |retry| retry,
        throttle: |throttle| throttle,
        nested: false,
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

pub(super) const WORLDS: [World; 14] = [
    PLAIN,
    World {
        name: "answers to clear away, and waits between them",
        script: |path, before| match (path, before) {
            ("/own", 0) => Drips(503, 4),
            ("/own", 1) => Status(503),
            ("/own", 2) => Reset,
            _ => Status(200),
        },
        points: 10,
        ..PLAIN
    },
    World {
        name: "the server asks for a pause",
        script: |path, before| match (path, before) {
            ("/own", 0) => Pause(1),
            ("/own", 1) => Pause(2),
            _ => Status(200),
        },
        points: 7,
        ..PLAIN
    },
    World {
        name: "a launch, and attempts with a time limit",
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
    World {
        name: "a deadline",
        script: |path, _| match path {
            "/own" => Drips(503, 2),
            _ => Status(200),
        },
        request: |request| request.deadline(800 * MS),
        points: 15,
        ..PLAIN
    },
    World {
        name: "a body that is read, breaks off, and is asked for again",
        script: |path, before| match (path, before) {
            ("/own", 0 | 1) => Breaks,
            ("/own", _) => Drips(200, 4),
            _ => Status(200),
        },
        request: |request| request.buffer_response(1000),
        points: 12,
        ..PLAIN
    },
    World {
        name: "in the queue, between others",
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
    World {
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
    World {
        name: "a retry that is refused after a time in the queue",
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
    World {
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
    World {
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
    World {
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
    World {
        name: "a letter about it is written",
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
    World {
        name: "a call inside it, which is retried as well",
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
];
