//! Charts, as SVG that is readable on light and dark screens.

use maud::{Markup, PreEscaped, html};

use crate::results::Run;

/// Colours and fonts of all charts. The reader's browser chooses between light and dark.
///
/// Blue and orange differ in lightness as well, so colour-blind readers can tell them apart.
pub(crate) const STYLE: &str = "
.chart { --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --good: #0b5f94; --bad: #e0701a; --none: #737d87; --trouble: #e4e8ec; }
@media (prefers-color-scheme: dark) {
  .chart { --paper: #12161c; --ink: #e6edf3; --soft: #9aa5b1; --line: #343c46;
    --good: #85cbf5; --bad: #d9691e; --none: #7d8791; --trouble: #2a323c; }
}
.chart text { font: 13px Helvetica, Arial, sans-serif; fill: var(--ink); }
.chart .soft { font-size: 11px; fill: var(--soft); }
.chart.timeline text { font-size: 22px; }
.chart.timeline .title { font-size: 27px; font-weight: 700; }
.chart .share { font-size: 32px; font-weight: 700; }
.chart .ours { font-weight: 700; }
.chart .paper { fill: var(--paper); }
.chart .line { stroke: var(--line); stroke-width: 1; fill: none; }
.chart .capacity { stroke: var(--ink); stroke-width: 2; stroke-dasharray: 8 5; fill: none; }
.chart .good { fill: var(--good); }
.chart .bad { fill: var(--bad); }
.chart .none { fill: var(--none); }
.chart .trouble { fill: var(--trouble); }
";

const WIDTH: f64 = 920.0;
/// Where names end and bars start.
const LEFT: f64 = 240.0;
const RIGHT: f64 = 16.0;
const BAR: f64 = 16.0;
const BAR_ROW: f64 = 26.0;
const LEGEND: f64 = 28.0;

/// A chart with its parts at given places.
pub(crate) struct Chart {
    pub(crate) class: &'static str,
    pub(crate) name: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) parts: Markup,
}

impl Chart {
    /// Draws it for a page that has the styles.
    pub(crate) fn inside(self) -> Markup {
        html! {
            svg class=(self.class) viewBox=(format!("0 0 {} {}", self.width, number(self.height))) role="img"
                aria-label=(self.name) xmlns="http://www.w3.org/2000/svg" {
                (self.parts)
            }
        }
    }

    /// Draws it for a file, with a title and a background, because the page around it may be light or dark.
    pub(crate) fn alone(self, title: &[&str]) -> String {
        const LINE: f64 = 34.0;
        let baseline = |index: usize| 40.0 + LINE * index as f64;
        let top = 19.0 + LINE * title.len() as f64;
        let (width, height) = (self.width, number(top + self.height));
        let svg = html! {
            svg class=(self.class) viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height)
                role="img" aria-label=(self.name) xmlns="http://www.w3.org/2000/svg" {
                style { (PreEscaped(STYLE)) }
                rect class="paper" width=(width) height=(height) rx="8" {}
                @for (index, line) in title.iter().enumerate() {
                    text class="title" x="20" y=(baseline(index)) { (line) }
                }
                g transform=(format!("translate(0 {top})")) { (self.parts) }
            }
        };
        svg.into_string() + "\n"
    }
}

/// Draws the outcomes of all calls and the wasted requests, with a row for each run.
pub(crate) fn outcomes(name: &str, runs: &[&Run]) -> Markup {
    const SHARES: f64 = 360.0;
    const WASTE: f64 = LEFT + SHARES + 40.0;
    const WASTE_PLOT: f64 = WIDTH - RIGHT - WASTE - 60.0;
    let kinds = [
        ("good", "succeeded"),
        ("bad", "gave up with a response"),
        ("none", "ended with an error"),
    ];
    let most = runs.iter().map(|run| run.waste()).fold(0.0, f64::max);
    let parts = html! {
        (legend(&kinds, LEFT, 11.0))
        text class="soft" x=(WASTE) y="14" { "wasted requests per call" }
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
        class: "chart",
        name,
        width: WIDTH,
        height,
        parts,
    };
    chart.inside()
}

/// Draws coloured squares with their meanings, side by side, with text of this size.
pub(crate) fn legend(kinds: &[(&str, &str)], left: f64, size: f64) -> Markup {
    let (side, baseline) = (0.9 * size, size + 3.0);
    let place = |index: usize| {
        let before = kinds[..index].iter();
        // A letter is about half as wide as it is high.
        let widths = before.map(|(_, text)| size * (2.6 + 0.55 * text.len() as f64));
        left + widths.sum::<f64>()
    };
    html! {
        @for (index, (class, text)) in kinds.iter().enumerate() {
            rect class=(class) x=(number(place(index))) y=(number(baseline - side)) width=(number(side))
                height=(number(side)) rx="2" {}
            text class="soft" x=(number(place(index) + 1.4 * size)) y=(number(baseline)) { (text) }
        }
    }
}

/// Rounds to a tenth of a pixel, so that the text is the same on every machine.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let chart = outcomes("a scenario", &[&some, &most]).into_string();
        let bars: Vec<_> = chart.split("<rect ").skip(1).collect();
        let has = |class: &str, x: f64, width: f64| {
            let bar = format!("class=\"{class}\" x=\"{}\" y=\"", number(x));
            let length = format!("width=\"{}\" height=\"16\"", number(width));
            bars.iter()
                .any(|it| it.starts_with(&bar) && it.contains(&length))
        };
        // 360 pixels for all calls: half succeeded, a quarter gave up, a quarter failed.
        assert!(has("good", LEFT, 180.0), "{chart}");
        assert!(has("bad", LEFT + 180.0, 90.0), "{chart}");
        assert!(has("none", LEFT + 270.0, 90.0), "{chart}");
        // Nothing succeeded.
        assert!(has("bad", LEFT, 360.0), "{chart}");
        // A waste of 1 is half as long as a waste of 2, which is the longest.
        assert!(
            has("bad", LEFT + 400.0, 102.0) && has("bad", LEFT + 400.0, 204.0),
            "{chart}"
        );
        assert!(
            chart.contains(">1.00<") && chart.contains(">2.00<"),
            "{chart}"
        );
    }
}
