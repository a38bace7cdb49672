//! A single page with all results. It loads nothing and runs no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::plots;
use crate::results::Results;
use crate::table::COLUMNS;

/// Colours, fonts and places of everything on a page. The reader's browser chooses between light and dark.
///
/// Blue and orange differ in lightness as well, so colour-blind readers can tell them apart. A phone shows charts and
/// tables below each other, and nothing has to be scrolled sideways.
pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --page: #f6f8fa; --card: #ffffff; --ink: #1f2328; --soft: #59636e;
  --line: #d1d9e0; --link: #0969da; --good: #0b5f94; --bad: #e0701a; --none: #737d87; --trouble: #e4e8ec;
  --line-1: #737d87; --line-2: #a0388c; --line-3: #00785a; --line-4: #e0701a; --line-5: #0b5f94; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0b0e13; --card: #12161c; --ink: #e6edf3; --soft: #9aa5b1; --line: #343c46;
    --link: #6cb6ff; --good: #85cbf5; --bad: #d9691e; --none: #7d8791; --trouble: #2a323c;
    --line-1: #9aa5b1; --line-2: #e58fd0; --line-3: #4fc79c; --line-4: #d9691e; --line-5: #85cbf5; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; }
h2 { font-size: 1.35rem; margin: 0 0 .5rem; max-width: 56rem; }
h3 { font-size: .95rem; font-weight: 400; margin: 0 0 .4rem; }
h3 small { color: var(--soft); font-size: .85rem; display: block; }
h3 b { color: var(--ink); }
p { max-width: 46rem; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { position: static; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; max-width: 56rem; }
dt { font-weight: 600; }
dd { margin: 0; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem 1.25rem 1.25rem; margin-top: 1.5rem; container-type: inline-size; }
.topic { color: var(--soft); margin: 0; }
.client.ours { font-weight: 700; }
figure { margin: 1.25rem 0 0; }
figcaption { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; list-style: none; margin: .25rem 0 .75rem; padding: 0;
  color: var(--soft); font-size: .85rem; }
.sign { width: 14px; height: 14px; margin-right: .4rem; vertical-align: -2px; overflow: visible; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); gap: 1.25rem 2rem; }
.plot { display: flex; flex-direction: column; min-width: 0; }
.plane { display: grid; grid-template: 6.5rem 1.3rem / 4.2rem minmax(0, 1fr); margin-top: auto; padding-top: .5rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 0 2rem; }
.lines { display: flex; flex-direction: column; min-width: 0; }
.lines .plane { grid-template: 15rem 1.3rem / 6rem minmax(0, 1fr); max-width: 46rem; }
.plane svg { display: block; width: 100%; height: 100%; overflow: visible; }
.plane .x { grid-column: 2; }
.ticks text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.line { stroke: var(--line); stroke-width: 1; fill: none; vector-effect: non-scaling-stroke; }
.capacity { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 6 4; fill: none; vector-effect: non-scaling-stroke; }
.good { fill: var(--good); }
.bad { fill: var(--bad); }
.none { fill: var(--none); }
.trouble { fill: var(--trouble); }
.line-1, .line-2, .line-3, .line-4, .line-5 { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; }
.line-1 { stroke: var(--line-1); }
.line-2 { stroke: var(--line-2); stroke-dasharray: 7 4; }
.line-3 { stroke: var(--line-3); stroke-dasharray: 2 3; }
.line-4 { stroke: var(--line-4); stroke-dasharray: 9 3 2 3; }
.line-5 { stroke: var(--line-5); stroke-width: 3; }
.theirs { stroke-width: 1; stroke-dasharray: none; }
.dot { stroke-width: 9; stroke-linecap: round; stroke-dasharray: none; vector-effect: non-scaling-stroke; }
.published { stroke: var(--soft); }
.dot.hole { stroke: var(--card); stroke-width: 5; }
.outcomes { font-size: .9rem; }
.outcome { display: grid; gap: .1rem .6rem; align-items: center; margin-bottom: .3rem;
  grid-template-columns: minmax(0, 17rem) minmax(0, 1fr) 3.8rem minmax(0, .7fr) 3.4rem; }
.outcome .bar { width: 100%; height: 1rem; display: block; }
.outcome .panel, .outcome .value { color: var(--soft); font-variant-numeric: tabular-nums; }
.outcome .value { color: var(--ink); }
.outcome .ticks { width: 100%; height: 1.3rem; overflow: visible; }
.outcome.head .panel:first-child, .outcome.axis .ticks:first-child { grid-column: 2; }
.outcome.head .panel:last-child, .outcome.axis .ticks:last-child { grid-column: 4; }
.outcome.head .panel:last-child { grid-column: 4 / 6; }
table { border-collapse: collapse; font-size: .875rem; margin-top: 1.25rem; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; vertical-align: top; white-space: nowrap; }
td:first-child, td:last-child { white-space: normal; }
td:first-child { min-width: 9.5rem; }
th { color: var(--soft); font-weight: 500; vertical-align: bottom; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td:last-child { color: var(--soft); }
footer { color: var(--soft); margin-top: 2rem; }
@container (max-width: 55rem) {
  thead { position: absolute; left: -99rem; }
  table, tbody, tr, td { display: block; }
  tr { border-bottom: 1px solid var(--line); padding: .5rem 0; display: grid; gap: .1rem 1.5rem;
    grid-template-columns: repeat(auto-fill, minmax(min(100%, 9rem), 1fr)); }
  td { border: 0; padding: 0; display: flex; justify-content: space-between; gap: .75rem; }
  td::before { content: attr(data-name); color: var(--soft); }
  td:first-child, td:last-child { grid-column: 1 / -1; display: block; min-width: 0; }
  td:first-child::before, td:last-child::before { content: none; }
}
@container (max-width: 40rem) {
  .outcome { grid-template-columns: minmax(0, 1fr) 3.6rem minmax(0, .8fr) 3rem; margin-bottom: .5rem; }
  .outcome .client { grid-column: 1 / -1; }
  .outcome.head .panel:first-child { grid-column: 1 / 3; }
  .outcome.head .panel:last-child { grid-column: 3 / 5; }
  .outcome.axis .ticks:first-child { grid-column: 1; }
  .outcome.axis .ticks:last-child { grid-column: 3; }
}
@media (max-width: 44rem) {
  body { padding: 1rem .75rem; }
  section { padding: .75rem; }
  dl { display: block; }
  dd { margin: 0 0 .4rem; }
}
";

/// A page with results.
pub(crate) struct Page<'a> {
    pub(crate) results: &'a [Results],
    /// The clients, and what they are.
    pub(crate) meanings: &'a [(&'a str, &'a str)],
    /// The command that draws it.
    pub(crate) command: &'a str,
}

impl Page<'_> {
    pub(crate) fn draw(&self) -> String {
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
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    a class="skip" href="#results" { "Skip to the results" }
                    header {
                        h1 { "What retries do to a service" }
                        p {
                            "All runs are in virtual time with the real middlewares. A request is "
                            em { "wasted" } " if it did not lead to a successful call. All random numbers come from "
                            "the seed, so the same command draws the same page. Titles are made of the figures of the "
                            "run."
                        }
                        p {
                            "Unless a scenario says otherwise, all calls come from one process with one client. The "
                            "clients are:"
                        }
                        dl {
                            @for (stack, means) in self.meanings { dt { (stack) } dd { (means) } }
                        }
                        @if self.results.len() > 1 {
                            nav aria-label="Scenarios" {
                                @for results in self.results { a href=(format!("#{}", results.name)) { (results.topic) } }
                            }
                        }
                    }
                    main id="results" {
                        @for results in self.results { (section(results)) }
                    }
                    footer { code { (self.command) } }
                }
            }
        };
        page.into_string()
    }
}

/// Shows one scenario: its conclusion, charts and table.
pub(crate) fn section(results: &Results) -> Markup {
    html! {
        section id=(results.name) {
            p class="topic" { (results.topic) }
            h2 { (results.conclusion) }
            p { (results.story) }
            @if !results.lines.is_empty() {
                div class="pair" {
                    @for lines in &results.lines { (lines.draw()) }
                }
            }
            (plots::timelines(results))
            (plots::outcomes(results))
            (table(results))
        }
    }
}

/// A phone shows the rows as blocks. Then only the roles say that it is a table.
fn table(results: &Results) -> Markup {
    html! {
        table role="table" {
            thead role="rowgroup" {
                tr role="row" {
                    th role="columnheader" { "client" }
                    @for (column, _) in COLUMNS { th role="columnheader" { (column) } }
                    th role="columnheader" { (format!("{}, seed {}", results.callers, results.seed)) }
                }
            }
            tbody role="rowgroup" {
                @for run in &results.runs {
                    tr role="row" {
                        td role="cell" { (plots::name(run)) }
                        @for (column, value) in COLUMNS { td role="cell" data-name=(column) { (value(run)) } }
                        td role="cell" { (run.note) }
                    }
                }
            }
        }
    }
}
