//! Pictures in files, as SVG that is readable on light and dark screens.

use maud::{Markup, PreEscaped, html};

/// Colours and fonts of all pictures. The reader's browser chooses between light and dark.
///
/// Blue and orange differ in lightness as well, so colour-blind readers can tell them apart.
pub(crate) const STYLE: &str = "
.chart { --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --good: #0b5f94; --bad: #e0701a; --none: #737d87; --trouble: #e4e8ec; }
@media (prefers-color-scheme: dark) {
  .chart { --paper: #12161c; --ink: #e6edf3; --soft: #9aa5b1; --line: #343c46;
    --good: #85cbf5; --bad: #d9691e; --none: #7d8791; --trouble: #2a323c; }
}
.chart text { font: 24px Helvetica, Arial, sans-serif; fill: var(--ink); }
.chart .soft { fill: var(--soft); }
.chart .title { font-size: 27px; font-weight: 700; }
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

/// A chart with its parts at given places.
pub(crate) struct Chart {
    pub(crate) class: &'static str,
    pub(crate) name: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) parts: Markup,
}

impl Chart {
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
