//! What many workers share, in memory. `proof/tests/real/fleet` says what any store does, and tries it on Redis.

mod budget;
mod faults;
mod throttle;
