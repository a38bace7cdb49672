use http::{HeaderName, HeaderValue};

use super::*;

const NOON: &str = "Sun, 06 Nov 1994 12:00:00 GMT";

fn noon() -> SystemTime {
    httpdate::parse_http_date(NOON).unwrap()
}

fn header_map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn hint_of(status: u16, lines: &[(&str, &str)]) -> Option<Duration> {
    let status = StatusCode::from_u16(status).unwrap();
    server_hint(status, &header_map(lines), noon())
}

fn secs(seconds: f64) -> Option<Duration> {
    Some(Duration::from_secs_f64(seconds))
}

#[test]
fn retry_after_in_seconds_with_and_without_fraction() {
    for (text, expected) in [
        ("0", secs(0.0)),
        ("2", secs(2.0)),
        ("2.0", secs(2.0)),
        ("0.25", secs(0.25)),
        (" 7 ", secs(7.0)),
        ("007", secs(7.0)),
        ("18446744073709551615", Some(Duration::MAX)),
        ("99999999999999999999999999999999", Some(Duration::MAX)),
    ] {
        assert_eq!(hint_of(503, &[("retry-after", text)]), expected, "{text}");
    }
    let endless = "9".repeat(64 * 1024);
    assert_eq!(
        hint_of(503, &[("retry-after", &endless)]),
        Some(Duration::MAX)
    );
}

#[test]
fn retry_after_as_a_date_counts_from_the_date_of_the_response() {
    for text in [
        "Sun, 06 Nov 1994 12:00:37 GMT",
        "Sunday, 06-Nov-94 12:00:37 GMT",
        "Sun Nov  6 12:00:37 1994",
    ] {
        assert_eq!(hint_of(503, &[("retry-after", text)]), secs(37.0), "{text}");
        let server_is_late = ("date", "Sun, 06 Nov 1994 11:00:00 GMT");
        assert_eq!(
            hint_of(503, &[server_is_late, ("retry-after", text)]),
            secs(3637.0),
            "{text}"
        );
    }
}

#[test]
fn an_unreadable_or_past_value_is_no_hint() {
    let garbage = "x".repeat(64 * 1024);
    let dots = ".".repeat(64 * 1024);
    for text in [
        "",
        "-1",
        "+1",
        "1e3",
        "NaN",
        "inf",
        "0x10",
        "1,5",
        "1.2.3",
        ".",
        "٣",
        "\u{fffd}",
        "soon",
        "1 2",
        "Sun, 06 Nov 1994 11:59:59 GMT",
        "Sun, 06 Nov 100000 12:00:00 GMT",
        "Sun, 31 Feb 1995 12:00:00 GMT",
        &garbage,
        &dots,
    ] {
        for name in [
            "retry-after-ms",
            "x-ms-retry-after-ms",
            "retry-after",
            "x-ratelimit-reset-after",
            "ratelimit",
            "ratelimit-reset",
            "x-ratelimit-reset",
            "x-rate-limit-reset",
            "x-ratelimit-reset-requests",
            "anthropic-ratelimit-tokens-reset",
        ] {
            assert_eq!(hint_of(503, &[(name, text)]), None, "{name}: {text:.40}");
        }
    }
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
    headers.insert(
        "ratelimit",
        HeaderValue::from_bytes(b"\"a\xff\";t=1").unwrap(),
    );
    assert_eq!(
        server_hint(StatusCode::SERVICE_UNAVAILABLE, &headers, noon()),
        None
    );
}

#[test]
fn the_first_header_that_parses_counts_and_each_suffices() {
    let all = [
        ("retry-after-ms", "1500"),
        ("x-ms-retry-after-ms", "2500"),
        ("retry-after", "3"),
        ("ratelimit", "\"default\";r=0;t=4"),
        ("ratelimit-reset", "5"),
        ("x-ratelimit-reset-after", "6.5"),
        ("x-ratelimit-reset", "7"),
        ("x-rate-limit-reset", "8"),
        ("x-ratelimit-reset-requests", "9s"),
        ("anthropic-ratelimit-requests-reset", "1994-11-06T12:00:10Z"),
    ];
    let expected = [1.5, 2.5, 3.0, 4.0, 5.0, 6.5, 7.0, 8.0, 9.0, 10.0];
    for (first, expected) in expected.into_iter().enumerate() {
        let mut lines = all;
        for line in &mut lines[..first] {
            line.1 = "unreadable !";
        }
        assert_eq!(hint_of(429, &lines), secs(expected), "{:?}", lines[first]);
        let alone = [lines[first]];
        assert_eq!(hint_of(429, &alone), secs(expected), "{alone:?}");
    }
}

#[test]
fn of_several_lines_the_longest_wait_counts() {
    let lines = [
        ("retry-after", "2"),
        ("retry-after", "9"),
        ("retry-after", "x"),
    ];
    assert_eq!(hint_of(503, &lines), secs(9.0));
}

#[test]
fn a_reset_time_is_read_by_its_size_and_form() {
    let noon = noon().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert_eq!(noon, 784_123_200.0);
    // Late enough for ten digits.
    let date = ("date", "Sun, 09 Sep 2001 01:46:40 GMT");
    for (text, expected) in [
        ("3", secs(3.0)),
        ("999999999", secs(999_999_999.0)),
        ("1000000030", secs(30.0)),
        ("1000000030.5", secs(30.5)),
        ("1000000030000", secs(30.0)),
        ("1000000000", secs(0.0)),
        ("999999999999", None),
        ("2001-09-09T01:47:10Z", secs(30.0)),
        ("2001-09-09T03:47:10.25+02:00", secs(30.25)),
        ("2001-09-09T01:46:39Z", None),
        ("100000-01-01T00:00:00Z", None),
        ("+100000-01-01T00:00:00Z", None),
        ("Sun, 09 Sep 2001 01:47:10 GMT", secs(30.0)),
        ("6m0s", secs(360.0)),
        ("12ms", secs(0.012)),
        ("1m26.4s", secs(86.4)),
        ("-5s", None),
        ("+5s", None),
        ("5s ago", None),
        ("99999999999999999999s", Some(Duration::MAX)),
        ("99999999999999999999h", Some(Duration::MAX)),
        ("99999999999999999999x", None),
        ("9".repeat(400).as_str(), Some(Duration::MAX)),
    ] {
        let hint = hint_of(429, &[date, ("x-ratelimit-reset", text)]);
        assert_eq!(hint, expected, "{text:.40}");
    }
}

#[test]
fn a_clock_before_1970_makes_no_wait_shorter() {
    let day_before = UNIX_EPOCH - Duration::from_secs(86_400);
    for text in ["1000000000", "1000000000000", "2001-09-09T01:46:40Z"] {
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("x-ratelimit-reset"),
            HeaderValue::from_static(text),
        )]);
        let hint = server_hint(StatusCode::TOO_MANY_REQUESTS, &headers, day_before);
        assert_eq!(hint, secs(1_000_086_400.0), "{text}");
    }
}

/// Each way to say when a window refills and how much remains.
const WINDOWS: &[(&str, &str, &str)] = &[
    ("ratelimit-reset", "30", "ratelimit-remaining"),
    ("x-ratelimit-reset-after", "30", "x-ratelimit-remaining"),
    ("x-ratelimit-reset", "30", "x-ratelimit-remaining"),
    ("x-rate-limit-reset", "30", "x-rate-limit-remaining"),
    (
        "x-ratelimit-reset-requests",
        "30s",
        "x-ratelimit-remaining-requests",
    ),
    (
        "x-ratelimit-reset-tokens",
        "30s",
        "x-ratelimit-remaining-tokens",
    ),
    (
        "anthropic-ratelimit-requests-reset",
        "1994-11-06T12:00:30Z",
        "anthropic-ratelimit-requests-remaining",
    ),
    (
        "anthropic-ratelimit-tokens-reset",
        "1994-11-06T12:00:30Z",
        "anthropic-ratelimit-tokens-remaining",
    ),
];

#[test]
fn a_reset_is_a_hint_where_its_window_is_spent() {
    for (reset, value, remaining) in WINDOWS {
        for status in [200, 403, 404, 429, 500, 502, 503, 504] {
            let with = |left| hint_of(status, &[(reset, value), (remaining, left)]);
            assert_eq!(with("0"), secs(30.0), "{status} {reset}");
            // A window with quota left did not refuse the request.
            for left in ["1", "98", "4990", "18446744073709551615"] {
                assert_eq!(with(left), None, "{status} {reset}, {left} left");
            }
        }
    }
}

#[test]
fn a_reset_without_a_remainder_is_a_hint_after_a_429_only() {
    for (reset, value, remaining) in WINDOWS {
        for status in [200, 403, 404, 429, 500, 502, 503, 504] {
            let expected = secs(30.0).filter(|_| status == 429);
            let hint = hint_of(status, &[(reset, value)]);
            assert_eq!(hint, expected, "{status} {reset}");
            // An unreadable remainder says nothing.
            let hint = hint_of(status, &[(reset, value), (remaining, "+0")]);
            assert_eq!(hint, expected, "{status} {reset}");
        }
    }
}

#[test]
fn of_several_windows_those_with_quota_left_say_nothing() {
    let requests = |left: &'static str| {
        [
            ("x-ratelimit-remaining-requests", left),
            ("x-ratelimit-reset-requests", "60s"),
        ]
    };
    let tokens = |left: &'static str| {
        [
            ("x-ratelimit-remaining-tokens", left),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]
    };
    let hint = |status, windows: [[(&'static str, &'static str); 2]; 2]| {
        hint_of(status, windows.concat().as_slice())
    };
    for status in [429, 503] {
        assert_eq!(hint(status, [requests("59"), tokens("149984")]), None);
        assert_eq!(hint(status, [requests("0"), tokens("149984")]), secs(60.0));
        assert_eq!(hint(status, [requests("59"), tokens("0")]), secs(360.0));
        assert_eq!(hint(status, [requests("0"), tokens("0")]), secs(360.0));
    }
    // Only the window without a remainder may have refused the request.
    assert_eq!(hint(429, [requests("59"), tokens("?")]), secs(360.0));
    assert_eq!(hint(429, [requests("?"), tokens("149984")]), secs(60.0));
    assert_eq!(hint(503, [requests("?"), tokens("149984")]), None);
}

/// The headers that express-rate-limit sends with every response, for a limit of 100 per 15 minutes.
fn express(left: &str) -> [Vec<(&'static str, String)>; 4] {
    let own = |lines: &[(&'static str, &str)]| {
        let lines = lines.iter();
        lines
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect()
    };
    [
        // Legacy: the reset in seconds since 1970.
        own(&[
            ("date", "Sun, 09 Sep 2001 01:46:40 GMT"),
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", left),
            ("x-ratelimit-reset", "1000000900"),
        ]),
        // Draft 6.
        own(&[
            ("ratelimit-policy", "100;w=900"),
            ("ratelimit-limit", "100"),
            ("ratelimit-remaining", left),
            ("ratelimit-reset", "900"),
        ]),
        // Draft 7.
        own(&[
            ("ratelimit-policy", "100;w=900"),
            (
                "ratelimit",
                &format!("limit=100, remaining={left}, reset=900"),
            ),
        ]),
        // Draft 8.
        own(&[
            (
                "ratelimit-policy",
                "\"100-in-15min\"; q=100; w=900; pk=:YWJj:",
            ),
            ("ratelimit", &format!("\"100-in-15min\"; r={left}; t=900")),
        ]),
    ]
}

#[test]
fn every_combination_that_express_rate_limit_sends() {
    fn hint(status: u16, sets: &[Vec<(&'static str, String)>]) -> Option<Duration> {
        let lines = sets.iter().flatten();
        let lines: Vec<_> = lines.map(|(name, value)| (*name, value.as_str())).collect();
        hint_of(status, &lines)
    }
    let (some, none) = (express("98"), express("0"));
    // The legacy headers may be combined with one of the drafts.
    for draft in 0..4 {
        for sets in [vec![draft], vec![0, draft]] {
            let of = |all: &[Vec<_>]| sets.iter().map(|set| all[*set].clone()).collect::<Vec<_>>();
            for status in [200, 429, 500, 503] {
                assert_eq!(hint(status, &of(&some)), None, "{status} {sets:?}");
                assert_eq!(hint(status, &of(&none)), secs(900.0), "{status} {sets:?}");
            }
            // A `Retry-After` next to them takes precedence.
            let mut asked = of(&some);
            asked.push(vec![("retry-after", "2".to_owned())]);
            assert_eq!(hint(503, &asked), secs(2.0), "{sets:?}");
        }
    }
}

fn left(lines: &[(&str, &str)]) -> Option<(u64, Duration)> {
    let lines = lines.iter().map(|(name, value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    quota_left(&lines.collect())
}

#[test]
fn of_several_lines_the_smallest_number_is_what_is_left() {
    for numbers in [["3", "100"], ["100", "3"]] {
        let [one, other] = numbers.map(|number| ("ratelimit-remaining", number));
        let lines = [one, other, ("ratelimit-reset", "20")];
        assert_eq!(left(&lines), Some((3, Duration::from_secs(20))));
    }
}

#[test]
fn tokens_that_are_left_are_no_count_of_requests() {
    let tokens = [
        ("x-ratelimit-remaining-tokens", "150"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    assert_eq!(left(&tokens), None);
    let both = [
        &tokens[..],
        &[
            ("x-ratelimit-remaining-requests", "5900"),
            ("x-ratelimit-reset-requests", "60s"),
        ],
    ];
    let minute = Duration::from_secs(60);
    assert_eq!(left(&both.concat()), Some((5900, minute)));
    let spent = [
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "60s"),
    ];
    assert_eq!(left(&spent), Some((0, minute)));
}

#[test]
fn the_ratelimit_field_of_every_draft() {
    for (lines, ordinary, refused) in [
        (&["\"default\";r=50;t=30"][..], None, None),
        (&["\"default\";t=30"], None, secs(30.0)),
        (&["\"default\";r=0;t=30"], secs(30.0), secs(30.0)),
        (&["default;r=0;t=30"], secs(30.0), secs(30.0)),
        // All spent windows must refill. A daily window with quota left does not count.
        (
            &["\"burst\";r=0;t=5, \"hour\";r=0;t=60", "\"day\";r=9;t=5000"],
            secs(60.0),
            secs(60.0),
        ),
        (&["\"burst\";r=1;t=5, \"day\";r=9;t=5000"], None, None),
        // Of the windows without a remainder, the first refill may allow a retry.
        (
            &["\"burst\";r=1;t=5, \"hour\";t=60, \"day\";t=5000"],
            None,
            secs(60.0),
        ),
        (&["limit=100, remaining=50, reset=30"], None, None),
        (&["limit=100, reset=30"], None, secs(30.0)),
        (
            &["limit=100, remaining=0, reset=30"],
            secs(30.0),
            secs(30.0),
        ),
        (
            &["limit=100", "remaining=0", "reset=30"],
            secs(30.0),
            secs(30.0),
        ),
        (&["\"default\";r=0"], None, None),
        (&["\"default\";r=0;t=-3"], None, None),
        (&["\"default\";r=0;t=9999999999999999"], None, None),
        (&["\"default;r=0;t=3"], None, None),
        (&["("], None, None),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| ("ratelimit", *line)).collect();
        assert_eq!(hint_of(500, &lines), ordinary, "{lines:?}");
        assert_eq!(hint_of(503, &lines), ordinary, "{lines:?}");
        assert_eq!(hint_of(429, &lines), refused, "{lines:?}");
    }
}

#[test]
fn a_reset_in_the_next_two_seconds_pauses_one_call_and_not_all() {
    let spent = |reset| [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)];
    for (lines, hint, pause) in [
        // Rounded to whole seconds, it may mean any moment.
        (spent("1"), secs(1.0), None),
        (spent("2"), secs(2.0), None),
        (spent("3"), secs(3.0), secs(3.0)),
        (spent("0.25"), secs(0.25), secs(0.25)),
        (spent("120ms"), secs(0.12), secs(0.12)),
        // Other headers say what to do.
        (
            [("retry-after", "1"), ("x-other", "1")],
            secs(1.0),
            secs(1.0),
        ),
        (
            [("retry-after-ms", "2000"), ("x-other", "1")],
            secs(2.0),
            secs(2.0),
        ),
    ] {
        let status = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(hint_of(429, &lines), hint, "{lines:?}");
        let headers = header_map(&lines);
        assert_eq!(pause_hint(status, &headers, noon()), pause, "{lines:?}");
    }
}

#[test]
fn a_timestamp_pauses_all_calls_only_with_a_date_beside_it() {
    const DATE: (&str, &str) = ("date", "Sun, 09 Sep 2001 01:46:40 GMT");
    let received = httpdate::parse_http_date(DATE.1).unwrap() + Duration::from_millis(300);
    let minute = Duration::from_secs(60);
    for (reset, needs_date) in [
        ("1000000060", true),
        ("1000000060000", true),
        ("2001-09-09T01:47:40Z", true),
        ("Sun, 09 Sep 2001 01:47:40 GMT", true),
        // The same by any clock.
        ("60", false),
        ("1m", false),
    ] {
        let quota = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)];
        let dated = header_map(&[&quota[..], &[DATE]].concat());
        let headers = header_map(&quota);
        let status = StatusCode::TOO_MANY_REQUESTS;
        for headers in [&dated, &headers] {
            let hint = server_hint(status, headers, received).unwrap();
            assert!(hint.abs_diff(minute) < Duration::from_secs(1), "{hint:?}");
        }
        assert_eq!(pause_hint(status, &dated, received), Some(minute));
        assert_eq!(quota_left(&dated), Some((0, minute)));
        // The clocks may differ by any time, so the other calls do not wait.
        let known = Some(minute).filter(|_| !needs_date);
        assert_eq!(pause_hint(status, &headers, received), known, "{reset}");
        let left = known.map(|reset| (0, reset));
        assert_eq!(quota_left(&headers), left, "{reset}");
    }
    // A `Retry-After` is meant for all, whatever it says.
    let asks = header_map(&[("retry-after", "Sun, 09 Sep 2001 01:47:40 GMT")]);
    let hint = pause_hint(StatusCode::SERVICE_UNAVAILABLE, &asks, received);
    assert_eq!(hint, secs(59.7));
}
