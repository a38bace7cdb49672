//! The data in Redis, and access to it.

use std::sync::Arc;
use std::time::Duration;

use reqwest_steady::ThrottleMiddleware;
use reqwest_steady::fleet::FleetLimits;
use reqwest_steady::fleet::{FleetError, FleetStore, RedisStore, RetriesAsk, RetryTerms};
use reqwest_steady::testing::ScriptedServer;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::redis_server::RedisServer;
use super::{KEY, worker};
use crate::support::log::Log;
use crate::support::raw::in_time;
use crate::support::scripted::URL;

const TERMS: RetryTerms = RetryTerms {
    ttl: Duration::from_secs(10),
    ratio: 0.2,
    min_per_sec: 2.0,
};

/// Sends one request of each kind.
async fn ask_all(store: &RedisStore) -> Result<(), FleetError> {
    let ask = worker().rate(1.0, 1).want(1).pace(0.0, 1.0);
    store.lease(KEY, ask).await?;
    store.lease(KEY, worker().rate(1.0, 1).want(5)).await?;
    store.lease(KEY, worker().rate(1.0, 1).want(5)).await?;
    store
        .retries(KEY, RetriesAsk::new(TERMS).deposits(1))
        .await?;
    store.pause(KEY, Duration::from_secs(1)).await
}

#[tokio::test]
async fn a_request_is_one_round_trip() {
    let name = "a_request_is_one_round_trip";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let store = server.builder().build().unwrap();
    assert_eq!(store.round_trips(), 0);
    ask_all(&store).await.unwrap();
    // Redis did not know three scripts yet.
    assert_eq!(store.round_trips(), 5 + 3);
    ask_all(&store).await.unwrap();
    assert_eq!(store.round_trips(), 5 + 3 + 5);
}

#[tokio::test]
async fn lost_scripts_are_reloaded_and_lost_keys_start_again() {
    let name = "lost_scripts_are_reloaded_and_lost_keys_start_again";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let store = server.builder().build().unwrap();
    let ask = worker().rate(1.0, 5);
    assert_eq!(store.lease(KEY, ask.want(3)).await.unwrap().tokens, 3);
    server.command::<()>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(store.lease(KEY, ask.want(2)).await.unwrap().tokens, 2);
    ask_all(&store).await.unwrap();
    server.command::<()>(&["FLUSHALL"]).await;
    let lease = store.lease(KEY, ask.want(5)).await.unwrap();
    assert_eq!(
        (lease.tokens, lease.pause, lease.pace),
        (5, Duration::ZERO, None)
    );
}

#[tokio::test]
async fn all_names_have_an_expiry_and_the_hash_tag() {
    let name = "all_names_have_an_expiry_and_the_hash_tag";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let store = server.builder().build().unwrap();
    ask_all(&store).await.unwrap();
    let mut names: Vec<String> = server.command(&["KEYS", "*"]).await;
    names.sort();
    let tag = format!("{{steady:{KEY}}}");
    let expected = ["retries", "state", "waiting", "workers"];
    assert_eq!(names, expected.map(|what| format!("{tag}:{what}")));
    for name in names {
        let left: i64 = server.command(&["PTTL", &name]).await;
        assert!(left > 0 && left <= 70_000, "{name}: {left}");
    }
    // A key with a pause lives until the pause ends, and a bucket until it is full. Other keys live for a minute.
    store.pause(KEY, Duration::from_secs(600)).await.unwrap();
    let state = format!("{tag}:state");
    let left: i64 = server.command(&["PTTL", &state]).await;
    assert!(left > 590_000, "{left}");
    let slow = worker().rate(0.01, 100);
    store.lease("slow", slow.want(100)).await.unwrap();
    let left: i64 = server.command(&["PTTL", "{steady:slow}:state"]).await;
    assert!(left > 10_000_000, "{left}");
    // A request without a rate or with a shorter pause does not shorten the expiry.
    store.lease("slow", worker()).await.unwrap();
    store.pause("slow", Duration::from_secs(1)).await.unwrap();
    let left: i64 = server.command(&["PTTL", "{steady:slow}:state"]).await;
    assert!(left > 10_000_000, "{left}");
}

#[tokio::test]
async fn other_prefixes_are_other_fleets() {
    let Some(server) = RedisServer::start("other_prefixes_are_other_fleets").await else {
        return;
    };
    let one = server.builder().prefix("one").build().unwrap();
    let other = server.builder().prefix("other").build().unwrap();
    let mut heard = other.pauses().await.unwrap();
    let ask = worker().rate(1.0, 2).want(2);
    assert_eq!(one.lease(KEY, ask).await.unwrap().tokens, 2);
    one.pause(KEY, Duration::from_secs(9)).await.unwrap();
    let lease = other.lease(KEY, ask).await.unwrap();
    assert_eq!((lease.tokens, lease.pause), (2, Duration::ZERO));
    other.pause("own", Duration::from_secs(1)).await.unwrap();
    assert_eq!(in_time(heard.next()).await.unwrap().key, "own");
    for wrong in ["", "a:b", "a{b", "a*", &"a".repeat(65)] {
        assert!(server.builder().prefix(wrong).build().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn data_of_another_program_is_an_error_and_stays_unchanged() {
    let name = "data_of_another_program_is_an_error_and_stays_unchanged";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let store = server.builder().build().unwrap();
    for what in ["state", "retries"] {
        let name = format!("{{steady:{KEY}}}:{what}");
        server.command::<()>(&["SET", &name, "mine"]).await;
    }
    let code = FleetError::Refused {
        code: "WRONGTYPE".to_owned(),
    };
    let lease = store.lease(KEY, worker().rate(1.0, 1).want(1)).await;
    assert_eq!(lease.unwrap_err(), code);
    let retries = store.retries(KEY, RetriesAsk::new(TERMS)).await;
    assert_eq!(retries.unwrap_err(), code);
    let pause = store.pause(KEY, Duration::from_secs(1)).await;
    assert_eq!(pause.unwrap_err(), code);
    let kept: String = server
        .command(&["GET", &format!("{{steady:{KEY}}}:state")])
        .await;
    assert_eq!(kept, "mine");
    // The connection still works.
    ask_all_of(&store, "other").await;
}

async fn ask_all_of(store: &RedisStore, key: &str) {
    let ask = worker().rate(1.0, 1).want(1);
    assert_eq!(store.lease(key, ask).await.unwrap().tokens, 1);
}

#[tokio::test]
async fn invalid_values_in_our_fields_are_ignored() {
    let name = "invalid_values_in_our_fields_are_ignored";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let store = server.builder().build().unwrap();
    let state = format!("{{steady:{KEY}}}:state");
    let invalid = [
        "HSET", &state, "level", "nan", "at", "x", "seen", "", "pause", "soon",
    ];
    server.command::<()>(&invalid).await;
    let retries = format!("{{steady:{KEY}}}:retries");
    server
        .command::<()>(&["HSET", &retries, "x", "y", "5", "1", "pool", "nan soon"])
        .await;
    let lease = store
        .lease(KEY, worker().rate(1.0, 4).want(4))
        .await
        .unwrap();
    assert_eq!((lease.tokens, lease.pause), (4, Duration::ZERO));
    let left = store.retries(KEY, RetriesAsk::new(TERMS)).await.unwrap();
    assert_eq!(left.balance, 20.0);
    for (level, balance) in [("-5", 0.0), ("1e300", 20.0)] {
        let pool = format!("{level} 1");
        let set = ["HSET", &retries, "pool", &pool];
        server.command::<()>(&set).await;
        let left = store.retries(KEY, RetriesAsk::new(TERMS).want(0)).await;
        assert_eq!(left.unwrap().balance, balance);
    }
}

/// Simulates a clock of Redis that was an hour ahead until now.
#[tokio::test]
async fn a_clock_that_is_set_back_delays_workers_briefly() {
    let name = "a_clock_that_is_set_back_delays_workers_briefly";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let store = server.builder().build().unwrap();
    let ask = worker().rate(100.0, 10);
    store.lease(KEY, ask.want(15)).await.unwrap();
    store.pause(KEY, Duration::from_secs(5)).await.unwrap();
    store
        .retries(KEY, RetriesAsk::new(TERMS).want(20))
        .await
        .unwrap();

    let state = format!("{{steady:{KEY}}}:state");
    for field in ["seen", "at", "pause"] {
        let time: String = server.command(&["HGET", &state, field]).await;
        let ahead = time.parse::<f64>().unwrap() + 3600e6;
        server
            .command::<()>(&["HSET", &state, field, &ahead.to_string()])
            .await;
    }
    let retries = format!("{{steady:{KEY}}}:retries");
    let slots: Vec<(String, String)> = server.command(&["HGETALL", &retries]).await;
    for (start, counts) in slots {
        if start == "pool" {
            let (level, refilled) = counts.split_once(' ').unwrap();
            let ahead = refilled.parse::<f64>().unwrap() + 3600e6;
            let pool = format!("{level} {ahead:.0}");
            let set = ["HSET", &retries, "pool", &pool];
            server.command::<()>(&set).await;
            continue;
        }
        let ahead = start.parse::<f64>().unwrap() + 3600e6;
        server.command::<()>(&["HDEL", &retries, &start]).await;
        server
            .command::<()>(&["HSET", &retries, &ahead.to_string(), &counts])
            .await;
    }

    let lease = store.lease(KEY, ask.want(1)).await.unwrap();
    assert!(lease.retry_after < Duration::from_secs(1), "{lease:?}");
    assert!(lease.pause > Duration::from_secs(1), "{lease:?}");
    assert!(lease.pause <= Duration::from_secs(5), "{lease:?}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let lease = store.lease(KEY, ask.want(10)).await.unwrap();
    assert!(lease.tokens >= 5, "{lease:?}");
    // Withdrawals still count, for at most one more ttl.
    let ask = RetriesAsk::new(TERMS);
    let left = store.retries(KEY, ask.successes(9)).await.unwrap();
    assert_eq!(left.balance, 0.0);
    let slots: Vec<(String, String)> = server.command(&["HGETALL", &retries]).await;
    let now: (f64, f64) = server.command(&["TIME"]).await;
    let now = now.0 * 1e6 + now.1;
    let is_pool = |(name, _): &&(String, String)| name == "pool";
    let starts: Vec<_> = slots.iter().filter(|slot| !is_pool(slot)).collect();
    assert_eq!((starts.len(), slots.len()), (1, 2), "{slots:?}");
    assert!(starts[0].0.parse::<f64>().unwrap() <= now, "{slots:?}");
    let (_, pool) = slots.iter().find(is_pool).unwrap();
    let refilled = pool.split_once(' ').unwrap().1;
    assert!(refilled.parse::<f64>().unwrap() <= now, "{slots:?}");
    // From now on, successes refill the pool again.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let left = store.retries(KEY, ask.successes(1)).await.unwrap();
    assert_eq!(left.balance, 1.0);
}

#[tokio::test]
async fn a_thousand_requests_at_once_are_decided_one_by_one() {
    let name = "a_thousand_requests_at_once_are_decided_one_by_one";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let store = server.store();
    let mut asked = JoinSet::new();
    for _ in 0..1000 {
        let store = store.clone();
        let ask = worker().rate(0.001, 100).want(1);
        asked.spawn(async move { store.lease(KEY, ask).await.unwrap().tokens });
    }
    // The bucket, and one token in advance.
    let granted: u32 = asked.join_all().await.into_iter().sum();
    assert_eq!(granted, 101);
}

#[tokio::test]
async fn the_documented_commands_are_sufficient() {
    let name = "the_documented_commands_are_sufficient";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let docs = include_str!("../../../../src/fleet/redis.rs");
    let rule = docs.split("/// ACL SETUSER").nth(1).unwrap();
    let rule = rule.split("```").next().unwrap().replace("///", " ");
    let mut command = vec!["ACL", "SETUSER"];
    // Redis before 7.2 lacks this command and does not need it.
    command.extend(
        rule.split_whitespace()
            .filter(|word| *word != "+client|setinfo"),
    );
    server.command::<()>(&command).await;
    let url = format!("redis://steady:password@127.0.0.1:{}", server.port);
    let store = RedisStore::builder(&url).store_timeout(Duration::from_secs(5));
    let store = store.build().unwrap();
    let mut heard = store.pauses().await.unwrap();
    ask_all(&store).await.unwrap();
    assert_eq!(in_time(heard.next()).await.unwrap().key, KEY);
    // Long enough that the store has to check the connection.
    let silence = tokio::time::timeout(Duration::from_millis(1200), heard.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    ask_all(&store).await.unwrap();
    assert_eq!(in_time(heard.next()).await.unwrap().key, KEY);
}

#[tokio::test]
async fn passwords_are_shown_nowhere() {
    let Some(server) = RedisServer::start("passwords_are_shown_nowhere").await else {
        return;
    };
    server
        .command::<()>(&["CONFIG", "SET", "requirepass", "right-secret"])
        .await;
    let store = |password: &str| {
        let url = format!("redis://:{password}@127.0.0.1:{}", server.port);
        RedisStore::builder(&url).store_timeout(Duration::from_secs(5))
    };
    let right = store("right-secret").build().unwrap();
    ask_all(&right).await.unwrap();
    let wrong = store("wrong-secret");
    let mut shown = vec![format!("{wrong:?}"), format!("{right:?}")];
    let wrong = wrong.build().unwrap();
    let errors = [
        wrong.lease(KEY, worker()).await.unwrap_err(),
        wrong.pauses().await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, FleetError::Refused { .. }), "{error:?}");
        shown.push(format!("{error:?} {error}"));
    }
    shown.push(format!("{wrong:?} {:?}", right.pauses().await.unwrap()));
    assert!(!shown.concat().contains("secret"), "{shown:?}");
}

/// Returns the codes with which Redis refuses a lease and a subscription.
async fn codes(url: &str) -> (Option<String>, Option<String>) {
    let client = redis::Client::open(url).unwrap();
    let store = RedisStore::builder_from_client(&client);
    let store = store.store_timeout(Duration::from_secs(5)).build().unwrap();
    let code = |error| match error {
        FleetError::Refused { code } => code,
        other => panic!("{url}: {other:?}"),
    };
    let lease = store.lease(KEY, worker().rate(1.0, 1).want(1)).await;
    let pauses = store.pauses().await;
    (lease.err().map(code), pauses.err().map(code))
}

#[tokio::test]
async fn a_refused_login_keeps_the_code_of_redis() {
    let name = "a_refused_login_keeps_the_code_of_redis";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let limited = ["ACL", "SETUSER", "limited", "on", ">its-secret", "+hello"];
    server.command::<()>(&limited).await;
    server
        .command::<()>(&["CONFIG", "SET", "requirepass", "right-secret"])
        .await;
    for (user, refused) in [
        ("", "NOAUTH"),
        (":wrong-secret@", "WRONGPASS"),
        ("nobody:right-secret@", "WRONGPASS"),
        ("limited:its-secret@", "NOPERM"),
    ] {
        for (database, protocol) in [("", 2), ("1", 2), ("", 3), ("1", 3)] {
            let place = format!("127.0.0.1:{}/{database}", server.port);
            let url = format!("redis://{user}{place}?protocol=resp{protocol}");
            let refused = Some(refused.to_owned());
            assert_eq!(codes(&url).await, (refused.clone(), refused), "{url}");
        }
    }
    // Subscriptions do not depend on the database.
    let url = format!("redis://:right-secret@127.0.0.1:{}/99", server.port);
    assert_eq!(codes(&url).await, (Some("ERR".to_owned()), None));
}

#[tokio::test]
async fn the_log_shows_why_redis_refuses_a_login() {
    let name = "the_log_shows_why_redis_refuses_a_login";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    server
        .command::<()>(&["CONFIG", "SET", "requirepass", "right-secret"])
        .await;
    for (user, refused) in [("", "NOAUTH"), (":wrong-secret@", "WRONGPASS")] {
        let url = format!("redis://{user}127.0.0.1:{}", server.port);
        let store = RedisStore::builder(&url).store_timeout(Duration::from_secs(5));
        let fleet = FleetLimits::with_store(Arc::new(store.build().unwrap()));
        let throttle = ThrottleMiddleware::builder().rate(10.0, 10).fleet(fleet);
        let http = ScriptedServer::statuses([200]);
        let client = http.client(throttle.build().unwrap());
        let log = Log::default();
        let listening = log.listen();
        for _ in 0..2 {
            in_time(client.get(URL).send()).await.unwrap();
        }
        drop(listening);
        let expected = "fleet store lost, using local limits: fleet store refused with";
        assert_eq!(log.last(), format!("{expected} {refused}"));
        assert_eq!(log.count(), 1);
        assert_eq!(http.count(), 2);
    }
}

/// Returns how often the server received this command.
async fn calls_of(server: &RedisServer, command: &str) -> usize {
    let stats: String = server.command(&["INFO", "commandstats"]).await;
    let line = format!("cmdstat_{command}:calls=");
    let mut lines = stats.lines();
    let count = lines.find_map(|stat| stat.strip_prefix(&line)?.split(',').next());
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn the_reason_of_a_refused_login_is_read_once_in_a_row() {
    let name = "the_reason_of_a_refused_login_is_read_once_in_a_row";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    let password = |secret| {
        [
            "ACL",
            "SETUSER",
            "worker",
            "on",
            "resetpass",
            secret,
            "~*",
            "&*",
            "+@all",
        ]
    };
    server.command::<()>(&password(">old")).await;
    let url = format!("redis://worker:new@127.0.0.1:{}", server.port);
    let store = RedisStore::builder(&url).store_timeout(Duration::from_secs(5));
    let store = store.build().unwrap();
    let code = "WRONGPASS".to_owned();
    let refused = FleetError::Refused { code };

    for hellos in 1..=2 {
        // The first error after a kill is the closed connection.
        while store.lease(KEY, worker()).await != Err(refused.clone()) {
            sleep(Duration::from_millis(10)).await;
        }
        let logins = calls_of(&server, "auth").await + 3;
        while calls_of(&server, "auth").await < logins {
            let lease = store.lease(KEY, worker()).await;
            assert_eq!(lease, Err(refused.clone()));
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(calls_of(&server, "hello").await, hellos);

        server.command::<()>(&password(">new")).await;
        while store.lease(KEY, worker()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        server.command::<()>(&password(">old")).await;
        server
            .command::<i64>(&["CLIENT", "KILL", "USER", "worker"])
            .await;
    }
}

#[tokio::test]
async fn errors_of_redis_keep_their_code() {
    let Some(server) = RedisServer::start("errors_of_redis_keep_their_code").await else {
        return;
    };
    let urls = || ["", "/1"].map(|database| server.url() + database);
    let refusal = |url: String| async move { codes(&url).await.0 };

    server.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    for url in urls() {
        assert_eq!(refusal(url).await.as_deref(), Some("READONLY"));
    }
    server.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;

    // An endless script, which the server reports after 10 ms.
    server
        .command::<()>(&["CONFIG", "SET", "lua-time-limit", "10"])
        .await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut busy = client.get_multiplexed_async_connection().await.unwrap();
    let endless = tokio::spawn(async move {
        let mut endless = redis::cmd("EVAL");
        let endless = endless.arg("while true do end").arg(0);
        endless.query_async::<()>(&mut busy).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    for url in urls() {
        assert_eq!(refusal(url).await.as_deref(), Some("BUSY"));
    }
    server.command::<()>(&["SCRIPT", "KILL"]).await;
    assert!(endless.await.unwrap().is_err());
    for url in urls() {
        assert_eq!(refusal(url).await, None);
    }
}

#[tokio::test]
async fn a_client_of_the_user_works_with_either_protocol() {
    let name = "a_client_of_the_user_works_with_either_protocol";
    let Some(server) = RedisServer::start(name).await else {
        return;
    };
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}/?protocol={protocol}", server.url());
        let client = redis::Client::open(url).unwrap();
        let store = RedisStore::builder_from_client(&client);
        let store = store.store_timeout(Duration::from_secs(5)).build().unwrap();
        ask_all(&store).await.unwrap();
        let left = store.retries(KEY, RetriesAsk::new(TERMS)).await.unwrap();
        assert!(left.balance > 20.0);
    }
}
