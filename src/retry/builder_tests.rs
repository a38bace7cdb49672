use super::*;

#[test]
fn a_setting_that_makes_no_sense_is_refused_by_name_and_value() {
    let builder = RetryMiddleware::builder;
    for (builder, said) in [
        (
            builder().deadline(Duration::ZERO),
            "deadline (0s) should be longer than zero",
        ),
        (
            builder().attempt_timeout(Duration::ZERO),
            "attempt_timeout (0s) should be longer than zero",
        ),
        (
            builder().retry_window(Duration::ZERO),
            "retry_window (0s) should be longer than zero",
        ),
        (
            builder().launch_spread(Duration::from_secs(301)),
            "launch_spread (5m 1s) should not be longer than the retry_window (5m)",
        ),
        (
            builder().idempotency_header("two words"),
            "idempotency_header (\"two words\") should be a valid header name",
        ),
        (
            builder().attempt_header(""),
            "attempt_header (\"\") should be a valid header name",
        ),
        (
            builder().attempt_header("Idempotency-Key"),
            "attempt_header (\"Idempotency-Key\") should not be the header of the idempotency key",
        ),
        (
            builder().retry_without_key(true),
            "retry_without_key (true) needs a client that follows no redirects, because a request may be \
             accepted with a redirect: if yours follows none, set `client_follows_redirects` to false, \
             otherwise use idempotency keys",
        ),
        (
            builder()
                .client_follows_redirects(false)
                .retry_unsent(true)
                .client_follows_redirects(true),
            "retry_unsent (true) needs a client that follows no redirects, because a request may be \
             accepted with a redirect: if yours follows none, set `client_follows_redirects` to false, \
             otherwise use idempotency keys",
        ),
        (
            builder().attempt_header("Content-Length"),
            "attempt_header (\"Content-Length\") should not be a reserved header: \
             this one frames messages or controls connections",
        ),
        (
            builder().idempotency_header("authorization"),
            "idempotency_header (\"authorization\") should not be a reserved header: \
             this one carries credentials",
        ),
        (
            builder()
                .attempt_timeout(Duration::from_millis(2001))
                .deadline(Duration::from_secs(2)),
            "attempt_timeout (2s 1ms) should not be longer than the deadline (2s)",
        ),
        (
            builder()
                .budget(Budget::unlimited())
                .budget_per_host(Budget::builder()),
            "budget_per_host (with `budget`) is ambiguous: \
             remove one of them, because a call has one budget",
        ),
        (
            builder()
                .budget_per_host(Budget::builder())
                .budget(Budget::unlimited()),
            "budget_per_host (with `budget`) is ambiguous: \
             remove one of them, because a call has one budget",
        ),
        (
            builder().budget_per_host(Budget::builder().retry_ratio(10.0)),
            "retry_ratio (10.0) should be from 0 to 1: 0.1 allows one retry for ten calls (10 %)",
        ),
        (
            builder().backoff(Backoff::exponential(Duration::ZERO)),
            "backoff base (0s) should be longer than zero",
        ),
    ] {
        assert_eq!(builder.build().unwrap_err().to_string(), said);
    }
}

#[test]
fn the_last_value_of_a_header_counts_as_of_other_settings() {
    let fine = RetryMiddleware::builder()
        .attempt_header(" ")
        .attempt_header("fine");
    assert_eq!(fine.build().unwrap().attempt_header().unwrap(), "fine");
    let error = RetryMiddleware::builder()
        .attempt_header("fine")
        .attempt_header(" ");
    let error = error.build().unwrap_err();
    assert!(error.to_string().starts_with("attempt_header (\" \")"));
}

#[test]
fn the_longest_durations_are_fine() {
    let built = RetryMiddleware::builder()
        .max_retries(u32::MAX)
        .deadline(Duration::MAX)
        .attempt_timeout(Duration::MAX)
        .retry_window(Duration::MAX)
        .max_server_delay(Duration::MAX)
        .launch_spread(Duration::MAX)
        .backoff(Backoff::exponential(Duration::MAX).cap(Duration::MAX))
        .build();
    assert!(built.is_ok());
}
