//! **Schedule**: when does the retry start?
//!
//! The second of the three stages after a failed attempt: decide, schedule, admit. A retry waits as long as the server
//! asks (`hint`) and as long as the random backoff says (`backoff`). A retry that would start after the deadline or the
//! retry window is skipped (`deadline`).

mod backoff;
mod deadline;
mod hint;

use std::time::Duration;

use rand::Rng;

pub use backoff::{Backoff, Jitter};
pub(crate) use deadline::{CallTime, Limit, Moment};
pub(crate) use hint::{pause_hint, quota_left, server_hint};

use crate::entropy::up_to;

/// The longest random time that is added to a hint. It spreads clients that got the same hint.
const MAX_SPREAD: Duration = Duration::from_secs(1);

/// Returns the wait before a retry: the longer of hint and backoff. A hint is spread by up to [`MAX_SPREAD`].
pub(crate) fn wait(hint: Option<Duration>, backoff: Duration, rng: &mut dyn Rng) -> Duration {
    match hint {
        None => backoff,
        Some(hint) => hint
            .max(backoff)
            .saturating_add(up_to(hint.min(MAX_SPREAD), rng)),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn a_wait_exceeds_the_hint_by_at_most_a_second() {
        let mut rng = StdRng::seed_from_u64(1);
        let ms = Duration::from_millis;
        for (hint, backoff, low, high) in [
            (None, ms(300), ms(300), ms(300)),
            (Some(ms(0)), ms(300), ms(300), ms(300)),
            (Some(ms(100)), ms(300), ms(300), ms(400)),
            (Some(ms(5000)), ms(300), ms(5000), ms(6000)),
            (Some(Duration::MAX), ms(300), Duration::MAX, Duration::MAX),
        ] {
            let waits: Vec<_> = (0..1000).map(|_| wait(hint, backoff, &mut rng)).collect();
            let (least, most) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
            assert!(
                least >= low && most <= high,
                "{hint:?}: {least:?} to {most:?}"
            );
            let slack = high.saturating_sub(low) / 20;
            assert!(
                least <= low + slack && most >= high - slack,
                "not spread: {hint:?}"
            );
        }
    }
}
