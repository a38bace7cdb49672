//! Keeps `docs/` in step with the metrics.

use std::collections::BTreeSet;

use serde_json::Value;

use super::catalogue::{ALL, MetricKind};

const DASHBOARD: &str = include_str!("../../../docs/grafana-dashboard.json");
const ALERTS: &str = include_str!("../../../docs/alerts.yml");
const REFERENCE: &str = include_str!("../../../docs/metrics.md");

/// The names of our metrics as Prometheus stores them.
fn series() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for metric in ALL {
        match metric.kind {
            MetricKind::Counter | MetricKind::Gauge => {
                names.insert(metric.name.to_owned());
            }
            MetricKind::Histogram => {
                for part in ["_bucket", "_sum", "_count"] {
                    names.insert(format!("{}{part}", metric.name));
                }
            }
        }
    }
    names
}

/// Returns every word that looks like the name of one of our metrics.
fn names_in(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("steady_"))
        .collect()
}

fn collect_queries(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("expr" | "query" | "definition", Value::String(query)) => {
                        queries.push(query.clone());
                    }
                    _ => collect_queries(field, queries),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_queries(item, queries)),
        _ => {}
    }
}

#[test]
fn the_dashboard_shows_every_metric_and_asks_for_no_other() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut queries = Vec::new();
    collect_queries(&dashboard, &mut queries);
    let queries = queries.join("\n");
    let used = names_in(&queries);
    let known = series();
    for name in &used {
        assert!(known.contains(*name), "{name} does not exist");
    }
    for metric in ALL {
        assert!(
            used.iter().any(|name| name.starts_with(metric.name)),
            "{} is not shown",
            metric.name
        );
    }
}

#[test]
fn panels_do_not_overlap_and_use_the_chosen_source_and_hosts() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let positions: BTreeSet<_> = panels
        .iter()
        .map(|panel| {
            (
                panel["gridPos"]["y"].as_u64(),
                panel["gridPos"]["x"].as_u64(),
            )
        })
        .collect();
    assert_eq!(positions.len(), panels.len());
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty());
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
            let query = target["expr"].as_str().unwrap();
            assert!(query.contains(r#"host=~"$host""#), "{query}");
        }
    }
}

#[test]
fn the_alerts_ask_for_no_metric_that_does_not_exist() {
    let known = series();
    let used = names_in(ALERTS);
    for name in &used {
        assert!(known.contains(*name), "{name} does not exist");
    }
    for needed in [
        "steady_retries_total",
        "steady_requests_total",
        "steady_retry_budget_exhausted_total",
        "steady_dead_letters_total",
    ] {
        assert!(used.contains(needed), "no alert looks at {needed}");
    }
}

#[test]
fn the_reference_has_a_row_for_each_metric_with_its_kind() {
    for metric in ALL {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let start = format!("| `{}` | {kind} | {} |", metric.name, metric.unit.as_str());
        assert!(
            REFERENCE.contains(&start),
            "no row that begins with {start}"
        );
    }
    let names: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
    for name in names_in(REFERENCE) {
        assert!(names.contains(name), "{name} does not exist");
    }
}
