//! Charts, as SVG that is readable on light and dark screens.

use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

use maud::{Markup, PreEscaped, html};

use crate::results::{Run, Tick};

/// Colours and type of all charts. Whoever looks decides between light and dark.
pub(crate) const STYLE: &str = "
.chart { --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --good: #0b5f94; --bad: #e0701a; --none: #737d87; --trouble: #eef1f4; }
@media (prefers-color-scheme: dark) {
  .chart { --paper: #12161c; --ink: #e6edf3; --soft: #9aa5b1; --line: #343c46;
    --good: #85cbf5; --bad: #d9691e; --none: #7d8791; --trouble: #20262e; }
}
.chart text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.chart .soft { font-size: 11px; fill: var(--soft); }
.chart .title { font-size: 15px; font-weight: 600; }
.chart .paper { fill: var(--paper); }
.chart .line { stroke: var(--line); stroke-width: 1; fill: none; }
.chart .good { fill: var(--good); }
.chart .bad { fill: var(--bad); }
.chart .none { fill: var(--none); }
.chart .trouble { fill: var(--trouble); }
";

const WIDTH: f64 = 920.0;
/// Where names end and plots begin.
const LEFT: f64 = 240.0;
const RIGHT: f64 = 16.0;
const PLOT: f64 = WIDTH - LEFT - RIGHT;
/// One stack in a timeline.
const ROW: f64 = 58.0;
const GAP: f64 = 12.0;
/// One stack in a chart of bars.
const BAR: f64 = 16.0;
const BAR_ROW: f64 = 26.0;
const LEGEND: f64 = 28.0;

/// A chart with its parts at given places.
struct Chart {
    height: f64,
    name: String,
    parts: Markup,
}

impl Chart {
    /// For a page that has the styles.
    fn inside(self) -> Markup {
        html! {
            svg class="chart" viewBox=(format!("0 0 {WIDTH} {}", self.height)) role="img"
                aria-label=(self.name) xmlns="http://www.w3.org/2000/svg" {
                (self.parts)
            }
        }
    }

    /// For a file of its own, on paper of its own: what is around it may be light or dark.
    fn alone(self) -> String {
        const MARGIN: f64 = 16.0;
        let (width, height) = (WIDTH + 2.0 * MARGIN, self.height + 2.0 * MARGIN + 20.0);
        let svg = html! {
            svg class="chart" viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height)
                role="img" aria-label=(self.name) xmlns="http://www.w3.org/2000/svg" {
                style { (PreEscaped(STYLE)) }
                rect class="paper" width=(width) height=(height) rx="8" {}
                text class="title" x=(MARGIN) y=(MARGIN + 12.0) { (self.name) }
                g transform=(format!("translate({MARGIN} {})", MARGIN + 20.0)) { (self.parts) }
            }
        };
        svg.into_string() + "\n"
    }
}

/// Requests per 100 ms over time, a row for each run, all on the same scales.
pub(crate) fn timeline(name: &str, trouble: &Range<Duration>, runs: &[&Run]) -> Markup {
    timeline_chart(name, trouble, runs).inside()
}

/// The same for a file of its own. Runs may have other names there.
pub(crate) fn timeline_alone(name: &str, trouble: &Range<Duration>, runs: &[&Run]) -> String {
    timeline_chart(name, trouble, runs).alone()
}

fn timeline_chart(name: &str, trouble: &Range<Duration>, runs: &[&Run]) -> Chart {
    let ticks = runs.iter().map(|run| run.ticks.len()).max();
    let ticks = ticks.unwrap_or_default().max(1);
    let all = runs.iter().flat_map(|run| &run.ticks);
    let most = all.map(|tick| tick.all()).max().unwrap_or_default().max(1);
    let rows_end = LEGEND + runs.len() as f64 * (ROW + GAP);
    let x = |tick: f64| LEFT + PLOT * tick / ticks as f64;
    let ticks_of = |time: Duration| (time.as_secs_f64() * 10.0).min(ticks as f64);
    let (start, end) = (x(ticks_of(trouble.start)), x(ticks_of(trouble.end)));
    let mut kinds = vec![("good", "accepted"), ("bad", "refused or failed")];
    if !trouble.is_empty() {
        kinds.push(("trouble", "the service is in trouble"));
    }
    let parts = html! {
        (legend(&kinds, LEFT))
        text class="soft" x=(WIDTH - RIGHT) y="14" text-anchor="end" {
            "requests per 100 ms; the line above each row is " (most)
        }
        @for (index, run) in runs.iter().enumerate() {
            @let bottom = LEGEND + (index + 1) as f64 * (ROW + GAP) - GAP;
            @let y = |count: usize| bottom - ROW * count as f64 / most as f64;
            (label(run, bottom - ROW / 2.0))
            @if !trouble.is_empty() {
                rect class="trouble" x=(number(start)) y=(bottom - ROW) width=(number(end - start)) height=(ROW) {}
            }
            path class="line" d=(format!("M{LEFT} {}H{1}M{LEFT} {bottom}H{1}", bottom - ROW, WIDTH - RIGHT)) {}
            path class="bad" d=(area(&run.ticks, Tick::all, x, y, bottom)) {}
            path class="good" d=(area(&run.ticks, |tick| tick.accepted, x, y, bottom)) {}
        }
        @for second in seconds(ticks) {
            text class="soft" x=(number(x(second * 10.0))) y=(rows_end + 8.0) text-anchor="middle" {
                (second) " s"
            }
        }
    };
    Chart {
        height: rows_end + 14.0,
        name: name.to_owned(),
        parts,
    }
}

/// What became of all calls, and how many requests were for nothing, a row for each run.
pub(crate) fn outcomes(name: &str, runs: &[&Run]) -> Markup {
    const SHARES: f64 = 360.0;
    const WASTE: f64 = LEFT + SHARES + 40.0;
    const WASTE_PLOT: f64 = WIDTH - RIGHT - WASTE - 60.0;
    let kinds = [
        ("good", "succeeded"),
        ("bad", "given up with an answer"),
        ("none", "ended with an error"),
    ];
    let most = runs.iter().map(|run| run.waste()).fold(0.0, f64::max);
    let parts = html! {
        (legend(&kinds, LEFT))
        text class="soft" x=(WASTE) y="14" { "requests wasted a call" }
        @for (index, run) in runs.iter().enumerate() {
            @let top = LEGEND + index as f64 * BAR_ROW;
            @let scale = SHARES / run.calls.max(1) as f64;
            @let counts = [run.succeeded, run.given_up(), run.errors];
            text x=(LEFT - 16.0) y=(top + 12.5) text-anchor="end" { (run.stack) }
            @for (place, ((class, _), count)) in kinds.iter().zip(counts).enumerate() {
                @let before: usize = counts[..place].iter().sum();
                rect class=(class) x=(number(LEFT + scale * before as f64)) y=(top)
                    width=(number(scale * count as f64)) height=(BAR) {}
            }
            @let length = if most > 0.0 { WASTE_PLOT * run.waste() / most } else { 0.0 };
            rect class="bad" x=(WASTE) y=(top) width=(number(length)) height=(BAR) {}
            text x=(number(WASTE + length + 6.0)) y=(top + 12.5) { (format!("{:.2}", run.waste())) }
        }
    };
    let height = LEGEND + runs.len() as f64 * BAR_ROW;
    let name = format!("{name}: outcomes and waste");
    let chart = Chart {
        height,
        name,
        parts,
    };
    chart.inside()
}

fn legend(kinds: &[(&str, &str)], left: f64) -> Markup {
    /// About as wide as a letter.
    const LETTER: f64 = 6.0;
    let place = |index: usize| {
        let before = kinds[..index].iter();
        let widths = before.map(|(_, text)| 34.0 + LETTER * text.len() as f64);
        left + widths.sum::<f64>()
    };
    html! {
        @for (index, (class, text)) in kinds.iter().enumerate() {
            rect class=(class) x=(place(index)) y="5" width="10" height="10" rx="2" {}
            text class="soft" x=(place(index) + 15.0) y="14" { (text) }
        }
    }
}

fn label(run: &Run, middle: f64) -> Markup {
    let share = 100.0 * run.succeeded as f64 / run.calls.max(1) as f64;
    let requests = run.requests as f64 / run.calls.max(1) as f64;
    html! {
        text x=(LEFT - 16.0) y=(number(middle - 2.0)) text-anchor="end" { (run.stack) }
        text class="soft" x=(LEFT - 16.0) y=(number(middle + 14.0)) text-anchor="end" {
            (format!("{share:.0} % succeed, {requests:.2} requests a call"))
        }
    }
}

/// Steps from the bottom line to a count for each tick.
fn area(
    ticks: &[Tick],
    count: impl Fn(Tick) -> usize,
    x: impl Fn(f64) -> f64,
    y: impl Fn(usize) -> f64,
    bottom: f64,
) -> String {
    let mut path = format!("M{} {}", number(x(0.0)), number(bottom));
    let mut last = 0;
    for (index, tick) in ticks.iter().enumerate() {
        let count = count(*tick);
        if count != last {
            let (x, y) = (number(x(index as f64)), number(y(count)));
            write!(path, "H{x}V{y}").expect("a text takes everything");
            last = count;
        }
    }
    path + &format!("H{}V{}Z", number(x(ticks.len() as f64)), number(bottom))
}

/// At most eight round seconds along so many ticks.
fn seconds(ticks: usize) -> impl Iterator<Item = f64> {
    let all = ticks as f64 / 10.0;
    let steps = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0, 3600.0,
    ];
    let step = steps.into_iter().find(|step| all / step <= 8.0);
    let step = step.unwrap_or(all);
    let places = (1..=8).map(move |index| (f64::from(index) * step * 10.0).round() / 10.0);
    // The last would be cut off by the edge.
    places.take_while(move |second| *second <= 0.98 * all)
}

/// A tenth of a pixel is fine enough, and comes out the same everywhere.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_goes_up_and_down_in_steps() {
        let tick = |accepted, refused| Tick { accepted, refused };
        let ticks = [tick(0, 0), tick(2, 1), tick(2, 1), tick(0, 0)];
        let x = |tick: f64| 10.0 * tick;
        let y = |count: usize| 100.0 - count as f64;
        let all = area(&ticks, Tick::all, x, y, 100.0);
        assert_eq!(all, "M0 100H10V97H30V100H40V100Z");
    }

    fn run(succeeded: usize, errors: usize, wasted: usize) -> Run {
        Run {
            stack: "a stack",
            calls: 100,
            succeeded,
            errors,
            requests: succeeded + wasted,
            wasted,
            peak: 0,
            ticks: vec![],
            note: String::new(),
        }
    }

    #[test]
    fn outcomes_are_shares_and_waste_is_to_scale() {
        let (some, most) = (run(50, 25, 100), run(0, 0, 200));
        let chart = outcomes("a world", &[&some, &most]).into_string();
        let bars: Vec<_> = chart.split("<rect ").skip(1).collect();
        let has = |class: &str, x: f64, width: f64| {
            let bar = format!("class=\"{class}\" x=\"{}\" y=\"", number(x));
            let length = format!("width=\"{}\" height=\"16\"", number(width));
            bars.iter()
                .any(|it| it.starts_with(&bar) && it.contains(&length))
        };
        // 360 for all calls: half succeeded, a quarter was given up, a quarter failed.
        assert!(has("good", LEFT, 180.0), "{chart}");
        assert!(has("bad", LEFT + 180.0, 90.0), "{chart}");
        assert!(has("none", LEFT + 270.0, 90.0), "{chart}");
        // And none at all.
        assert!(has("bad", LEFT, 360.0), "{chart}");
        // A waste of 1 is half as long as one of 2, which is the longest.
        assert!(
            has("bad", LEFT + 400.0, 102.0) && has("bad", LEFT + 400.0, 204.0),
            "{chart}"
        );
        assert!(
            chart.contains(">1.00<") && chart.contains(">2.00<"),
            "{chart}"
        );
    }

    #[test]
    fn trouble_is_shaded_for_as_long_as_it_lasts() {
        let mut seen = run(1, 0, 0);
        seen.ticks = vec![Tick::default(); 40];
        let second = Duration::from_secs(1);
        let chart = timeline("a world", &(second..3 * second), &[&seen]).into_string();
        // From a quarter to three quarters of 4 s.
        let band = format!(
            "class=\"trouble\" x=\"{}\" y=\"28\" width=\"332\"",
            LEFT + 166.0
        );
        assert!(chart.contains(&band), "{chart}");
        let calm = timeline("a world", &(second..second), &[&seen]).into_string();
        assert!(!calm.contains("trouble"), "{calm}");
    }

    #[test]
    fn seconds_are_round_and_few() {
        let places = |ticks| seconds(ticks).collect::<Vec<_>>();
        assert_eq!(places(3), [0.1, 0.2]);
        assert_eq!(places(61), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(places(600), [10.0, 20.0, 30.0, 40.0, 50.0]);
        assert!(places(10_000_000).len() <= 8);
    }
}
