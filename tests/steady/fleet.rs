//! What many workers share, with a store in memory. `proof/tests/real/fleet` checks every store, including Redis.

mod budget;
mod faults;
mod throttle;
