//! Which hosts and gates are shown, and what the retry knows of them.

use reqwest_steady::observe::BreakerState;
use reqwest_steady::{Budget, KeyBy, Steady};
use tokio::time::sleep;

use super::{HOST, client, gate, host, once, retry, start, status, steady, throttle};
use crate::support::scripted::{Server, URL, call, late, respond};
use crate::support::stacks::{MS, SEC, constant};

#[tokio::test(start_paused = true)]
async fn a_client_without_calls_has_no_hosts_even_after_looks() {
    let steady = Steady::default();
    for _ in 0..2 {
        assert_eq!(steady.host(HOST), None);
        let state = steady.state();
        assert!(state.hosts.is_empty() && state.private_gates.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_works_shows_that_nothing_limits_it() {
    let server = Server::statuses([200]);
    let steady = steady(retry(), throttle());
    assert_eq!(call(&client(&server, &steady), 0).await.unwrap(), 200);
    let host = host(&steady);
    assert_eq!(host.host, HOST);
    // A success pays for a fifth of a retry.
    assert_eq!(host.budget_balance, Some(20.2));
    assert_eq!((host.failures_in_a_row, host.in_line), (0, 0));
    let gate = gate(&steady);
    assert_eq!(gate.key.as_deref(), Some(HOST));
    assert_eq!(gate.breaker, BreakerState::Passing);
    assert_eq!((gate.limited_by, gate.pace, gate.rate), (None, None, None));
    assert_eq!((gate.window, gate.max_in_flight), (Some(16), 1024));
    assert_eq!((gate.in_flight, gate.queued), (0, 0));
    assert!(gate.oldest_wait.is_zero() && !gate.has_fleet);
    assert!(steady.state().private_gates.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_and_empty_the_budget() {
    let server = Server::new(|index| match index {
        0..=3 => late(MS, respond(503)),
        _ => respond(200),
    });
    let steady = steady(retry().backoff(constant(SEC)).max_retries(1), throttle());
    let client = client(&server, &steady);
    let failed = start(&client, "a");
    sleep(500 * MS).await;
    let seen = host(&steady);
    // The retry is paid before its wait.
    assert_eq!(
        (seen.budget_balance, seen.failures_in_a_row),
        (Some(19.0), 1)
    );
    assert_eq!(status(failed).await, 503);
    let seen = host(&steady);
    assert_eq!(
        (seen.budget_balance, seen.failures_in_a_row),
        (Some(19.0), 2)
    );
    assert_eq!(call(&client, 1).await.unwrap(), 503);
    let seen = host(&steady);
    assert_eq!(
        (seen.budget_balance, seen.failures_in_a_row),
        (Some(18.0), 4)
    );
    // A success ends the failures, refills the reserve by one and pays for a fifth of a retry.
    assert_eq!(call(&client, 2).await.unwrap(), 200);
    let seen = host(&steady);
    assert_eq!(
        (seen.budget_balance, seen.failures_in_a_row),
        (Some(19.2), 0)
    );
    // What successes pay for lasts for 10 s. The reserve stays.
    sleep(15 * SEC).await;
    assert_eq!(host(&steady).budget_balance, Some(19.0));
    assert_eq!(server.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn calls_in_line_are_counted() {
    let server = Server::by_request(|request| match request.url().path() {
        "/ok" => respond(200),
        _ => respond(429),
    });
    let empty = Budget::builder().retry_ratio(0.0).min_retries_per_sec(0.0);
    let retry = retry().backoff(constant(10 * MS)).budget_per_host(empty);
    let steady = steady(retry, throttle());
    // Behind a throttle they would wait in its queue.
    let client = server.client(steady.retry().clone());
    let calls = ["a", "b", "c"].map(|path| start(&client, path));
    sleep(SEC).await;
    let seen = host(&steady);
    assert_eq!((seen.in_line, seen.budget_balance), (3, Some(0.0)));
    assert!(seen.gates.is_empty());
    assert_eq!(server.count(), 3);
    calls[0].abort();
    sleep(MS).await;
    assert_eq!(host(&steady).in_line, 2);
    assert_eq!(status(start(&client, "ok")).await, 200);
    assert_eq!(host(&steady).in_line, 1);
    calls.iter().for_each(|call| call.abort());
    sleep(MS).await;
    assert_eq!(host(&steady).in_line, 0);
    // The call that the success released was refused again.
    assert_eq!(server.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn hosts_are_sorted_and_each_has_its_own_state() {
    let server = Server::by_request(|request| match request.url().host_str() {
        Some("b.example.com") => respond(503),
        _ => respond(200),
    });
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    for url in [
        "http://c.example.com/",
        "http://b.example.com/",
        "http://user:password@a.example.com/path?query",
        "http://a.example.com:8080/",
    ] {
        client.get(url).send().await.unwrap();
    }
    let state = steady.state();
    let seen = |of: fn(&reqwest_steady::observe::HostState) -> u32| {
        let hosts = state.hosts.iter();
        hosts
            .map(|host| (host.host.as_str(), of(host)))
            .collect::<Vec<_>>()
    };
    let expected = [
        ("a.example.com", 0),
        ("a.example.com:8080", 0),
        ("b.example.com", 1),
        ("c.example.com", 0),
    ];
    assert_eq!(seen(|host| host.failures_in_a_row), expected);
    for host in &state.hosts {
        assert_eq!(steady.host(&host.host).as_ref(), Some(host));
        assert_eq!(host.gates.len(), 1);
        assert_eq!(host.gates[0].key.as_ref(), Some(&host.host));
    }
    assert_eq!(steady.host("a.example.com:80"), None);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_gets_only_bare_posts_is_shown_too() {
    let server = Server::statuses([200]);
    for (budget, balance) in [(0.5, 5.0), (2.0, 20.0)] {
        let budget = Budget::builder().min_retries_per_sec(budget);
        let steady = steady(retry().budget_per_host(budget), throttle());
        // It cannot be retried, so it needs no budget.
        client(&server, &steady).post(URL).send().await.unwrap();
        let seen = host(&steady);
        assert_eq!(seen.budget_balance, Some(balance));
        assert_eq!((seen.failures_in_a_row, seen.gates.len()), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn one_budget_for_all_hosts_is_shown_at_each() {
    let server = Server::statuses([503]);
    let single = Budget::builder().retry_ratio(0.0).build().unwrap();
    for (budget, balance) in [(single, Some(18.0)), (Budget::unlimited(), None)] {
        let retry = retry().backoff(constant(MS)).max_retries(1);
        let steady = steady(retry.budget(budget), throttle());
        let client = client(&server, &steady);
        for host in ["a", "b"] {
            let url = format!("http://{host}.example.com/");
            assert_eq!(client.get(url).send().await.unwrap().status(), 503);
        }
        client.post(URL).send().await.unwrap();
        let state = steady.state();
        let balances = state.hosts.iter().map(|host| host.budget_balance);
        assert_eq!(balances.collect::<Vec<_>>(), [balance; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_with_several_keys_shows_a_gate_for_each() {
    let server = Server::by_request(|request| match request.url().path() {
        "/v1/orders/7" => respond(429),
        _ => respond(200),
    });
    let steady = steady(once(), throttle().key_by(KeyBy::HostAndPath(2)));
    let client = client(&server, &steady);
    for path in ["v1/users", "v1/orders/7?secret", "v1/orders/8", "health"] {
        assert!(start(&client, path).await.unwrap().is_ok());
    }
    client
        .get("http://other.example.com/v1/users")
        .send()
        .await
        .unwrap();
    let seen = steady.host(HOST).unwrap();
    let gates: Vec<_> = seen
        .gates
        .iter()
        .map(|gate| {
            let key = gate.key.as_deref().unwrap();
            (key, gate.breaker.as_str())
        })
        .collect();
    let expected = [
        ("api.example.com/health", "passing"),
        ("api.example.com/v1/orders", "passing"),
        ("api.example.com/v1/users", "passing"),
    ];
    assert_eq!(gates, expected);
    // Only the gate of the orders was refused, and has a pace since then.
    let paces: Vec<_> = seen.gates.iter().map(|gate| gate.pace.is_some()).collect();
    assert_eq!(paces, [false, true, false]);
    let state = steady.state();
    assert_eq!(state.hosts.len(), 2);
    assert_eq!(state.hosts[0], seen);
    assert_eq!(state.hosts[1].gates.len(), 1);
    assert!(state.private_gates.is_empty());
    assert_eq!(server.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_users_function_are_not_shown() {
    let server = Server::new(|_| late(10 * SEC, respond(200)));
    let by_tenant = KeyBy::from_fn(|request| {
        let key = request.headers().get("x-api-key");
        key.unwrap().to_str().unwrap().to_owned()
    });
    let steady = steady(retry(), throttle().max_in_flight(1).key_by(by_tenant));
    let client = client(&server, &steady);
    let calls: Vec<_> = ["sk-one", "sk-two", "sk-two", "sk-three", "sk-two"]
        .map(|key| tokio::spawn(client.get(URL).header("x-api-key", key).send()))
        .into();
    sleep(SEC).await;

    let state = steady.state();
    let queues: Vec<_> = state.private_gates.iter().map(|gate| gate.queued).collect();
    assert_eq!(queues, [2, 0, 0], "the longest first");
    assert!(state.private_gates.iter().all(|gate| gate.key.is_none()));
    assert_eq!(state.private_gates[0].oldest_wait, SEC);
    // The retry knows the host. None of its gates is known.
    assert_eq!(state.hosts.len(), 1);
    assert_eq!(state.hosts[0].host, HOST);
    assert!(state.hosts[0].gates.is_empty());
    assert_eq!(steady.host(HOST).as_ref(), Some(&state.hosts[0]));
    assert_eq!(steady.host("sk-two"), None);

    let shown = format!("{state:?} {state:#?}");
    assert!(!shown.contains("sk-"), "{shown}");
    #[cfg(feature = "serde")]
    assert!(!serde_json::to_string(&state).unwrap().contains("sk-"));
    calls.iter().for_each(|call| call.abort());
}

#[tokio::test(start_paused = true)]
async fn hosts_that_were_evicted_are_not_shown() {
    const CALLS: usize = 10_000;
    let server = Server::statuses([200]);
    let steady = steady(once(), throttle());
    let client = client(&server, &steady);
    for number in 0..CALLS {
        let url = format!("http://host{number}.example.com/");
        client.get(url).send().await.unwrap();
    }
    let state = steady.state();
    // The two tables evict different hosts.
    assert!(
        (3000..=8192).contains(&state.hosts.len()),
        "{}",
        state.hosts.len()
    );
    let gates: usize = state.hosts.iter().map(|host| host.gates.len()).sum();
    assert!((3000..=4096).contains(&gates), "{gates}");
    assert!(state.hosts.is_sorted_by(|a, b| a.host < b.host));
    for host in &state.hosts {
        let key = host.gates.first().map(|gate| gate.key.as_ref());
        assert!(key.is_none_or(|key| key == Some(&host.host)), "{host:?}");
    }
    let is_known = |number: usize| steady.host(&format!("host{number}.example.com")).is_some();
    let known = (0..CALLS).filter(|number| is_known(*number)).count();
    assert_eq!(known, state.hosts.len());
    assert!(is_known(CALLS - 1));
    assert_eq!(steady.state(), state, "looks evict nothing");
}
