//! What the server of `lab serve` runs.

use serde_json::{Value, json};

use super::Server;

#[test]
fn a_run_has_charts_toml_and_no_markup_of_the_caller() {
    let server = Server::start();
    let run = |name: &str, seed: u32| {
        let body = json!({ "service": { "name": name, "load.kind": "at-once", "load.calls": "5" }, "seed": seed });
        let (status, response) = server.post("/run", &body.to_string());
        assert_eq!(status, 200, "{response}");
        response
    };
    let response = run("<img src=x onerror=alert(1)>", 7);
    let html = response["html"].as_str().unwrap();
    assert!(
        html.contains("&lt;img src=x") && !html.contains("<img"),
        "{html}"
    );
    assert!(html.contains("seed 7"), "{html}");
    assert_eq!(
        response["toml"],
        "name = \"<img src=x onerror=alert(1)>\"\n\n[load]\nkind = \"at-once\"\ncalls = 5\n"
    );
    assert!(response["milliseconds"].is_u64());
    // The same run gives the same charts.
    assert_eq!(run("same", 3)["html"], run("same", 3)["html"]);
}

#[test]
fn a_run_with_settings_has_their_row_toml_and_rust() {
    let server = Server::start();
    let run = |settings: Value, other: &str| {
        let body = json!({
            "service": { "load.kind": "at-once", "load.calls": "5" },
            "settings": settings,
            "other_settings": other,
        });
        let (status, response) = server.post("/run", &body.to_string());
        assert_eq!(status, 200, "{response}");
        response
    };
    let defaults = run(
        json!({ "retry.max_retries": "5", "retry.deadline": "" }),
        "",
    );
    assert_eq!(
        defaults["settings_toml"],
        "# All settings have their defaults.\n"
    );
    let is_yours = |response: &Value| {
        response["html"]
            .as_str()
            .unwrap()
            .contains(">your settings</span>")
    };
    assert!(!is_yours(&defaults));

    let other = "[retry.status]\n404 = \"conditional\"\n";
    let changed = run(json!({ "retry.max_retries": " 2 " }), other);
    assert!(is_yours(&changed), "{changed}");
    assert_eq!(
        changed["settings_toml"],
        format!("[retry]\nmax_retries = 2\n\n{other}")
    );
    let rust = changed["settings_rust"].as_str().unwrap();
    for line in [
        ".max_retries(2)",
        ".status(StatusCode::from_u16(404).unwrap(), StatusClass::Conditional)",
    ] {
        assert!(rust.contains(line), "{rust}");
    }
    // What /run wrote fills the form again.
    let pasted = json!({ "settings": changed["settings_toml"] });
    let (status, form) = server.post("/form", &pasted.to_string());
    assert_eq!(status, 200, "{form}");
    assert_eq!(form["other_settings"], other);
    let field = r#"name="retry.max_retries" value="2""#;
    assert!(form["html"].as_str().unwrap().contains(field), "{form}");
}

/// Settings can wait for days, and the simulation ends after one.
#[test]
fn settings_that_wait_for_days_get_a_response() {
    let server = Server::start();
    let body = json!({
        "service": { "load.kind": "at-once", "load.calls": "50" },
        "settings": {
            "retry.launch_spread": "900h",
            "retry.retry_window": "900h",
            "throttle.max_queue_wait": "900h",
            "throttle.rate.limit": "1/day",
            "throttle.rate.burst": "1",
        },
    });
    let (status, response) = server.post("/run", &body.to_string());
    assert_eq!(status, 200, "{response}");
    let requests = response["requests"].as_u64().unwrap();
    assert!(requests < 1000, "{requests}");
    let html = response["html"].as_str().unwrap();
    assert!(html.contains(" errors"), "{html}");
}

#[test]
fn many_runs_at_the_same_time_all_get_a_response() {
    let server = Server::start();
    let largest = r#"{"service":{"load.kind":"steady","load.rate":"100/s","load.duration":"50s",
        "faults.outage.from":"0s","faults.outage.to":"60s"}}"#;
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let posts = || server.post("/run", largest).0;
        let threads: Vec<_> = (0..12).map(|_| scope.spawn(posts)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)),
        "{statuses:?}"
    );
    assert_eq!(server.post("/run", r#"{"service":{}}"#).0, 200);
}
