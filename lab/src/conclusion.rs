//! Phrases for titles, made of the figures of runs.

use crate::results::Run;

/// Returns the run of this client.
///
/// # Panics
///
/// Panics if no run has this name.
pub(crate) fn find_run<'a>(runs: &'a [Run], name: &str) -> &'a Run {
    let found = runs.iter().find(|run| run.stack == name);
    found.unwrap_or_else(|| panic!("no run of {name}"))
}

/// Says how many calls succeed. Only all calls are "all", so 99.99 % is not 100 %.
pub(crate) fn share(run: &Run) -> String {
    match run.succeeded {
        0 => "no call succeeds".to_owned(),
        count if count == run.calls => "all calls succeed".to_owned(),
        _ => format!("{} of calls succeed", percent(run)),
    }
}

/// Returns the share of calls that succeed, rounded, but never to "0.0 %" or "100.0 %" if that is wrong.
pub(crate) fn percent(run: &Run) -> String {
    let (succeeded, calls) = (run.succeeded, run.calls.max(1));
    if succeeded == 0 || succeeded == run.calls {
        return format!("{} %", 100 * succeeded / calls);
    }
    let rounded = 100.0 * succeeded as f64 / calls as f64;
    format!("{:.1} %", rounded.clamp(0.1, 99.9))
}

/// Says when the last call succeeds, or that not all do.
pub(crate) fn done(run: &Run) -> String {
    if run.succeeded < run.calls {
        return share(run);
    }
    format!("is done after {:.2} s", run.last_success.as_secs_f64())
}

/// Says how many calls succeed with this client, and at what cost.
pub(crate) fn share_and_cost(run: &Run) -> String {
    format!(
        "with {}, {} ({:.2} requests per call)",
        run.stack,
        share(run),
        run.per_call()
    )
}

/// Formats a number with commas: "30,000".
pub(crate) fn whole(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(calls: usize, succeeded: usize) -> Run {
        Run {
            calls,
            succeeded,
            ..Run::empty("a client")
        }
    }

    #[test]
    fn only_all_calls_are_all() {
        assert_eq!(share(&run(100_000, 100_000)), "all calls succeed");
        assert_eq!(share(&run(100_000, 99_999)), "99.9 % of calls succeed");
        assert_eq!(share(&run(8, 4)), "50.0 % of calls succeed");
        assert_eq!(share(&run(100_000, 1)), "0.1 % of calls succeed");
        assert_eq!(share(&run(100_000, 0)), "no call succeeds");
        assert_eq!(percent(&run(7, 7)), "100 %");
        assert_eq!(percent(&run(0, 0)), "0 %");
    }

    #[test]
    fn a_run_is_done_only_if_all_calls_succeed() {
        assert_eq!(done(&run(2, 2)), "is done after 0.00 s");
        assert_eq!(done(&run(2, 1)), "50.0 % of calls succeed");
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(whole),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
