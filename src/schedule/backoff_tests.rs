use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn backoff(jitter: Jitter) -> Backoff {
    Backoff::exponential(200 * MS).jitter(jitter)
}

#[test]
fn without_jitter_the_waits_are_exact() {
    let mut rng = StdRng::seed_from_u64(1);
    let waits: Vec<_> = (0..8)
        .map(|n| backoff(Jitter::None).draw(n, None, &mut rng).as_millis())
        .collect();
    assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
}

#[test]
fn each_jitter_stays_within_its_bounds_and_reaches_them() {
    let mut rng = StdRng::seed_from_u64(2);
    for (jitter, low, high) in [
        (Jitter::Full, Duration::ZERO, 800 * MS),
        (Jitter::Equal, 400 * MS, 800 * MS),
        (Jitter::Additive(100 * MS), 800 * MS, 900 * MS),
        (Jitter::None, 800 * MS, 800 * MS),
    ] {
        let draws: Vec<_> = (0..10_000)
            .map(|_| backoff(jitter).draw(2, None, &mut rng))
            .collect();
        let (least, most) = (*draws.iter().min().unwrap(), *draws.iter().max().unwrap());
        assert!(
            low <= least && most <= high,
            "{jitter:?} {least:?} {most:?}"
        );
        let slack = (high - low) / 100;
        assert!(least <= low + slack && most >= high - slack, "{jitter:?}");
    }
}

#[test]
fn additive_jitter_never_passes_the_cap() {
    let mut rng = StdRng::seed_from_u64(3);
    let backoff = backoff(Jitter::Additive(Duration::MAX)).cap(300 * MS);
    for n in 0..100 {
        assert!(backoff.draw(n, None, &mut rng) <= 300 * MS);
    }
}

#[test]
fn decorrelated_jitter_follows_the_wait_before() {
    let mut rng = StdRng::seed_from_u64(4);
    let backoff = backoff(Jitter::Decorrelated);
    for round in 0..1000 {
        let mut previous = None;
        for n in 0..20 {
            let wait = backoff.draw(n, previous, &mut rng);
            let longest = 3 * previous.unwrap_or(200 * MS);
            assert!(
                wait >= 200 * MS && wait <= longest.min(10_000 * MS),
                "round {round}, retry {n}: {wait:?} after {previous:?}"
            );
            previous = Some(wait);
        }
    }
}

#[test]
fn full_jitter_is_uniform_from_zero_to_the_cap() {
    const DRAWS: usize = 100_000;
    const BINS: usize = 100;
    let mut rng = StdRng::seed_from_u64(5);
    let backoff = backoff(Jitter::Full);
    let mut bins = [0_u32; BINS];
    for _ in 0..DRAWS {
        let wait = backoff.draw(40, None, &mut rng);
        let bin = wait.as_nanos() * BINS as u128 / 10_000_000_001;
        bins[bin as usize] += 1;
    }
    let expected = (DRAWS / BINS) as f64;
    let chi_squared: f64 = bins
        .iter()
        .map(|&count| (f64::from(count) - expected).powi(2) / expected)
        .sum();
    // 99 degrees of freedom: 1 seed in 1000 gives more than 148, and 1 in 1000 less than 58.
    assert!((58.0..148.0).contains(&chi_squared), "{chi_squared}");
}

#[test]
fn no_attempt_number_overflows() {
    let mut rng = StdRng::seed_from_u64(6);
    for multiplier in [1.0, 1.000_001, 2.0, 1e300, f64::MAX] {
        for cap in [Duration::from_secs(10), Duration::MAX] {
            for jitter in [
                Jitter::Full,
                Jitter::Equal,
                Jitter::Decorrelated,
                Jitter::Additive(Duration::MAX),
                Jitter::None,
            ] {
                let backoff = backoff(jitter).multiplier(multiplier).cap(cap);
                backoff.check().unwrap();
                for n in (0..2200).chain([i32::MAX as u32, u32::MAX]) {
                    let wait = backoff.draw(n, Some(Duration::MAX), &mut rng);
                    assert!(wait <= cap, "{backoff:?} {n}");
                }
            }
        }
    }
    assert_eq!(
        Backoff::exponential(Duration::MAX).ceiling(u32::MAX),
        Duration::MAX
    );
}

#[test]
fn an_invalid_value_is_named() {
    let base = 200 * MS;
    for (backoff, said) in [
        (
            Backoff::exponential(Duration::ZERO),
            "backoff base (0s) should be longer than zero",
        ),
        (
            Backoff::exponential(base).multiplier(0.5),
            "backoff multiplier (0.5) should be a finite number of at least 1.0",
        ),
        (
            Backoff::exponential(base).multiplier(f64::NAN),
            "backoff multiplier (nan) should be a finite number of at least 1.0",
        ),
        (
            Backoff::exponential(base).multiplier(f64::INFINITY),
            "backoff multiplier (inf) should be a finite number of at least 1.0",
        ),
        (
            Backoff::exponential(base).cap(100 * MS),
            "backoff cap (100ms) should not be shorter than the base (200ms): raise the cap, or lower the base",
        ),
    ] {
        assert_eq!(backoff.check().unwrap_err().to_string(), said);
    }
}

#[test]
fn the_cap_holds_from_the_first_wait_on() {
    let capped = Backoff::exponential(Duration::from_secs(10)).cap(Duration::from_secs(1));
    assert_eq!(
        [0, 1].map(|n| capped.ceiling(n)),
        [Duration::from_secs(1); 2]
    );
}
