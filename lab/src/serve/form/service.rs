//! The fields of a service.

use super::{Field, Form, Group, Values};

impl Form {
    /// Returns the fields of a service.
    pub(in super::super) fn service() -> Self {
        const LIMITS: &[&str] = &["window", "bucket", "gcra", "concurrency"];
        const RATES: &[&str] = &["window", "bucket", "gcra", "worker"];
        const KIND: &str = "limit.kind";
        const LOAD: &str = "load.kind";
        let groups = vec![
            Group {
                title: "Service",
                fields: vec![
                    Field::text("name", "Name", ""),
                    Field::text("latency", "Latency", "there and back, like 80ms"),
                    Field::number("jitter", "Jitter", "share of the latency, 0 to 1"),
                ],
            },
            Group {
                title: "Limit",
                fields: vec![
                    Field::choice(
                        KIND,
                        "Kind",
                        &[
                            ("none", "none"),
                            ("window", "fixed window"),
                            ("bucket", "token bucket"),
                            ("gcra", "GCRA, evenly spaced"),
                            ("concurrency", "requests at once"),
                            ("worker", "one worker with a queue"),
                        ],
                    ),
                    Field::text("limit.rate", "Rate", "like 10/s, 600/min or 5000/h")
                        .or("10/s")
                        .only(KIND, RATES),
                    Field::text("limit.window", "Window", "like 1s or 1min")
                        .or("1s")
                        .only(KIND, &["window"]),
                    Field::number("limit.burst", "Burst", "requests at once after a pause")
                        .or("10")
                        .only(KIND, &["bucket", "gcra"]),
                    Field::number("limit.at_once", "At once", "requests in work")
                        .or("8")
                        .only(KIND, &["concurrency"]),
                    Field::text("limit.work", "Work", "on one request, like 200ms")
                        .or("200ms")
                        .only(KIND, &["concurrency"]),
                    Field::number("limit.status", "Status of refusals", "")
                        .or("429")
                        .only(KIND, LIMITS),
                    Field::choice(
                        "limit.hint",
                        "Hint",
                        &[
                            ("none", "none"),
                            ("retry-after", "Retry-After"),
                            ("retry-after-ms", "retry-after-ms"),
                            ("ratelimit", "RateLimit"),
                            ("x-ratelimit-seconds", "X-RateLimit, seconds"),
                            ("x-ratelimit-epoch", "X-RateLimit, Unix time"),
                        ],
                    )
                    .only(KIND, LIMITS),
                ],
            },
            Group {
                title: "Faults",
                fields: vec![
                    Field::number(
                        "faults.errors",
                        "Random errors",
                        "share of responses, 0 to 1",
                    ),
                    Field::number("faults.error_status", "Their status", "").or("503"),
                    Field::number(
                        "faults.resets",
                        "Connection resets",
                        "share of requests, 0 to 1",
                    ),
                    Field::text(
                        "faults.outage.from",
                        "Outage from",
                        "like 10s; empty for none",
                    ),
                    Field::text("faults.outage.to", "Outage to", "")
                        .or("40s")
                        .only("faults.outage.from", &[]),
                    Field::text(
                        "faults.outage.response",
                        "Response while down",
                        "a status, or refused",
                    )
                    .or("503")
                    .only("faults.outage.from", &[]),
                    Field::text(
                        "faults.stall.from",
                        "Stall from",
                        "like 10s; empty for none",
                    ),
                    Field::text("faults.stall.to", "Stall to", "")
                        .or("13s")
                        .only("faults.stall.from", &[]),
                ],
            },
            Group {
                title: "Load",
                fields: vec![
                    Field::choice(
                        LOAD,
                        "Kind",
                        &[
                            ("steady", "steady"),
                            ("at-once", "all at once"),
                            ("bursts", "bursts"),
                        ],
                    ),
                    Field::text("load.rate", "Calls", "like 50/s")
                        .or("50/s")
                        .only(LOAD, &["steady"]),
                    Field::text("load.duration", "For", "like 20s")
                        .or("20s")
                        .only(LOAD, &["steady"]),
                    Field::number("load.calls", "Calls", "at once, or in each burst")
                        .or("100")
                        .only(LOAD, &["at-once", "bursts"]),
                    Field::text("load.every", "Every", "time between bursts")
                        .or("10s")
                        .only(LOAD, &["bursts"]),
                    Field::number("load.times", "Bursts", "")
                        .or("3")
                        .only(LOAD, &["bursts"]),
                    Field::number("load.clients", "Clients", "each with its own middlewares")
                        .or("1"),
                    Field::choice(
                        "load.method",
                        "Method",
                        &[("GET", "GET"), ("POST", "POST with a key")],
                    ),
                ],
            },
        ];
        Self {
            groups,
            defaults: Values::new(),
        }
    }
}
