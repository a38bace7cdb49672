//! Tests, benches and examples that need many dependencies: see `tests/`, `benches/` and `examples/`.
//!
//! This library runs the examples of guide pages that need other crates.

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/fleet.md")]
struct Fleet;

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/migration.md")]
struct Migration;

#[cfg(doctest)]
#[doc = include_str!("../../docs/metrics.md")]
struct Metrics;
