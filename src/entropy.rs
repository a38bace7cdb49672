//! The source of randomness.
//!
//! Only this module creates random generators. All other code gets one as an argument, so tests can pass a seeded one.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::{SmallRng, SysRng};
use rand::{Rng, RngExt, SeedableRng, TryRng};

/// The random generator that a middleware draws jitter from. It is fast and not meant for secrets.
pub(crate) struct Entropy(Mutex<SmallRng>);

impl Entropy {
    /// Creates a generator with a fixed seed, for tests and simulations. Without one, the operating system seeds it.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let rng = match seed {
            Some(seed) => SmallRng::seed_from_u64(seed),
            None => {
                SmallRng::try_from_rng(&mut SysRng).expect("the operating system has randomness")
            }
        };
        Self(Mutex::new(rng))
    }

    /// Calls `draw` with the generator.
    pub(crate) fn with<T>(&self, draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
        // The generator is valid even after a panic in `draw`.
        draw(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for Entropy {
    /// Creates a generator that the operating system seeds.
    fn default() -> Self {
        Self::new(None)
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

/// Draws a duration uniformly from `0..=limit`.
pub(crate) fn up_to(limit: Duration, rng: &mut dyn Rng) -> Duration {
    rng.random_range(Duration::ZERO..=limit)
}

/// A random UUID: version 4 of RFC 9562.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Uuid(u128);

impl Uuid {
    /// Draws from the operating system, so that not even a forked process repeats one.
    pub(crate) fn random() -> Self {
        let mut bytes = [0; 16];
        (SysRng.try_fill_bytes(&mut bytes)).expect("the operating system has randomness");
        bytes[6] = bytes[6] & 0x0f | 0x40; // version 4
        bytes[8] = bytes[8] & 0x3f | 0x80; // the variant of RFC 9562
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let fields = [0..8, 8..12, 12..16, 16..20, 20..32].map(|field| &digits[field]);
        f.write_str(&fields.join("-"))
    }
}
