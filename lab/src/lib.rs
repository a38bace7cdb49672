//! The workloads that the lab simulates, and the clients that it compares.
//!
//! The binary of this package runs them and draws charts. The tests of this package and a bench use them, too.

mod limiter;
pub mod random;
pub mod service;
pub mod stacks;
pub mod study;
pub mod troubles;
pub mod workloads;
