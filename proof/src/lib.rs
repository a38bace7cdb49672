//! What proves the crate and needs more than it should: see `tests/`, `benches/` and `examples/`.
//!
//! This library runs the examples of those pages of the guide that need other crates.

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/fleet.md")]
struct Fleet;

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/migration.md")]
struct Migration;

#[cfg(doctest)]
#[doc = include_str!("../../docs/metrics.md")]
struct Metrics;
