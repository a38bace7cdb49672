//! A single page with all results. It loads nothing and runs no script.

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart;
use crate::results::Results;
use crate::scenarios::MEANINGS;
use crate::table::COLUMNS;
use crate::timeline::Timeline;

const STYLE: &str = "
:root { color-scheme: light dark; --page: #f6f8fa; --card: #ffffff; --ink: #1f2328; --soft: #59636e;
  --line: #d1d9e0; --link: #0969da; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0b0e13; --card: #12161c; --ink: #e6edf3; --soft: #9aa5b1; --line: #343c46;
    --link: #6cb6ff; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1, h2 { line-height: 1.2; }
p { max-width: 46rem; }
a { color: var(--link); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; max-width: 52rem; }
dt { font-weight: 600; }
dd { margin: 0; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: .25rem 1.25rem 1.25rem; margin-top: 1.5rem; }
.scroll { overflow-x: auto; }
.scroll .chart { min-width: 44rem; width: 100%; height: auto; display: block; margin-top: 1rem; }
.scroll .timeline { min-width: 30rem; max-width: 40rem; overflow: visible; }
table { border-collapse: collapse; font-size: 14px; margin-top: 1rem; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td:last-child { color: var(--soft); white-space: normal; min-width: 14rem; }
footer { color: var(--soft); margin-top: 2rem; }
";

pub(crate) fn page(all: &[Results]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                // Prevents all loading and scripts, whatever future content the page has.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "reqwest-steady: the lab" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) (PreEscaped(chart::STYLE)) }
            }
            body {
                h1 { "What retries do to a service" }
                p {
                    "Each scenario below ran in virtual time with the real middlewares. A request is "
                    em { "wasted" } " if it did not lead to a successful call. All random numbers come from the seed, "
                    "so the same command draws the same page."
                }
                p {
                    "Unless a scenario says otherwise, all calls come from one process with one client. The clients "
                    "are:"
                }
                dl {
                    @for (stack, means) in MEANINGS { dt { (stack) } dd { (means) } }
                }
                nav {
                    @for results in all {
                        a href=(format!("#{}", results.scenario.name)) { (results.scenario.title) }
                    }
                }
                @for results in all { (section(results)) }
                footer { code { "cargo run --release -p lab" } }
            }
        }
    };
    page.into_string()
}

fn section(results: &Results) -> Markup {
    let scenario = results.scenario;
    let runs: Vec<_> = results.runs.iter().collect();
    let timeline = Timeline {
        title: &[scenario.title],
        trouble: &scenario.trouble,
        trouble_name: "service in trouble",
        capacity: None,
        until: Duration::MAX,
        runs: &runs,
    };
    html! {
        section id=(scenario.name) {
            h2 { (scenario.title) }
            p { (scenario.description(results.clients)) }
            div class="scroll" {
                (timeline.inside())
                (chart::outcomes(scenario.title, &runs))
                table {
                    thead {
                        tr {
                            th { "stack" }
                            @for (column, _) in COLUMNS { th { (column) } }
                            th { (format!("{} callers, seed {}", results.clients, results.seed)) }
                        }
                    }
                    tbody {
                        @for run in &runs {
                            tr {
                                td { (run.stack) }
                                @for (_, value) in COLUMNS { td { (value(run)) } }
                                td { (run.note) }
                            }
                        }
                    }
                }
            }
        }
    }
}
