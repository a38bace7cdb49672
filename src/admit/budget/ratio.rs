//! A ratio as a fraction of whole numbers, so that nothing is lost to rounding.

/// Largest numerator and denominator.
const LIMIT: u64 = 1_000_000;

/// Returns the simplest fraction for the ratio, as close as `LIMIT` allows: 0.75 becomes 3/4.
///
/// `ratio` is finite, not negative, and at most `LIMIT`.
pub(super) fn fraction(ratio: f64) -> (u64, u64) {
    // Continued fractions give the best approximations, the simplest first.
    let (mut before, mut best) = ((0, 1), (1, 0));
    let mut rest = ratio;
    loop {
        let whole = rest.floor();
        let next = (
            whole as u64 * best.0 + before.0,
            whole as u64 * best.1 + before.1,
        );
        if next.0 > LIMIT || next.1 > LIMIT {
            return best;
        }
        (before, best) = (best, next);
        let near = (best.0 as f64 / best.1 as f64 - ratio).abs() <= ratio * 1e-9;
        if near || rest == whole {
            return best;
        }
        rest = 1.0 / (rest - whole);
        if rest > LIMIT as f64 {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_become_simple_fractions() {
        for (ratio, expected) in [
            (0.0, (0, 1)),
            (0.1, (1, 10)),
            (0.2, (1, 5)),
            (0.25, (1, 4)),
            (1.0 / 3.0, (1, 3)),
            (0.75, (3, 4)),
            (0.99, (99, 100)),
            (0.999, (999, 1000)),
            (0.9999, (9999, 10_000)),
            (0.0001, (1, 10_000)),
            (1.0, (1, 1)),
            (2.0, (2, 1)),
            (2.5, (5, 2)),
            (1000.0, (1000, 1)),
        ] {
            assert_eq!(fraction(ratio), expected, "{ratio}");
        }
    }

    #[test]
    fn every_ratio_is_matched_closely_or_is_zero() {
        for step in 0..100_000_u32 {
            let ratio = f64::from(step) * std::f64::consts::PI / 1e5;
            let (p, q) = fraction(ratio);
            assert!(
                (p as f64 / q as f64 - ratio).abs() <= 2e-6,
                "{ratio}: {p}/{q}"
            );
            assert!(q > 0 && p <= LIMIT && q <= LIMIT);
        }
        assert_eq!(fraction(1e-9), (0, 1));
        // The smallest ratio that a budget accepts.
        assert_eq!(fraction(1e-6), (1, 1_000_000));
    }
}
