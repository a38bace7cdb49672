//! Requests per second over time, as a picture in a file.

use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

use maud::{Markup, html};

use crate::chart::{Chart, legend, number};
use crate::conclusion::{percent, whole};
use crate::results::{Run, Tick};

// A phone shows the picture at half this width, so letters are large and few. There they have 12 px.
const WIDTH: f64 = 800.0;
const MARGIN: f64 = 20.0;
/// Where the labels of the y axis end and plots begin.
const LEFT: f64 = 110.0;
const RIGHT: f64 = WIDTH - MARGIN;
const LETTER: f64 = 24.0;
const LEGEND: f64 = 33.0;
/// The two lines above each plot: the stack and its figures.
const HEADER: f64 = 88.0;
const LINE: f64 = 34.0;
/// The line above the first plot that names the trouble.
const TROUBLE: f64 = 30.0;
/// The average height of a plot.
const PLOT: f64 = 140.0;
const LEAST_PLOT: f64 = 30.0;
/// The space above the last plot for the name of the capacity.
const CAPACITY: f64 = 34.0;
const AXIS: f64 = 46.0;
/// The most labels after zero of the time axis.
const MOST_TICKS: u32 = 6;

/// The requests of each run over time. All rows have the same scales.
pub(crate) struct Timeline<'a> {
    /// The title, line by line.
    pub(crate) title: &'a [&'a str],
    /// When the service is in trouble, and what the chart calls it.
    pub(crate) trouble: &'a Range<Duration>,
    pub(crate) trouble_name: &'a str,
    /// How many requests per second the service can handle, if the chart shows it.
    pub(crate) capacity: Option<f64>,
    /// Where the time axis ends, if earlier than the longest run.
    pub(crate) until: Duration,
    pub(crate) runs: &'a [&'a Run],
}

impl Timeline<'_> {
    /// Draws it for a file, with its title.
    pub(crate) fn alone(&self) -> String {
        self.chart().alone(self.title)
    }

    fn chart(&self) -> Chart {
        let scales = Scales::of(self);
        let rows = self.rows(&scales);
        let bottom = rows.last().map_or(LEGEND, |row| row.bottom);
        let kinds = [
            ("good", "requests that succeeded"),
            ("bad", "wasted (refused, failed, late)"),
        ];
        let parts = html! {
            (legend(&kinds, MARGIN, LETTER))
            @if !self.trouble.is_empty() {
                (self.shade(&scales, &rows))
            }
            @for row in &rows { (row.draw(&scales, self.capacity)) }
            @if let (Some(capacity), Some(last)) = (self.capacity, rows.last()) {
                text x=(RIGHT) y=(number(last.y(&scales, capacity) - 8.0)) text-anchor="end" {
                    "server capacity " (rate(capacity))
                }
            }
            @for second in seconds(scales.end, MOST_TICKS) {
                @let anchor = if second < scales.end { "middle" } else { "end" };
                text class="soft" x=(number(scales.x(second))) y=(number(bottom + 32.0)) text-anchor=(anchor) {
                    (second) " s"
                }
            }
        };
        Chart {
            class: "chart timeline",
            name: self.title.join(" "),
            width: WIDTH,
            height: bottom + AXIS,
            parts,
        }
    }

    /// Rows from top to bottom, each as high as its rates need.
    fn rows(&self, scales: &Scales) -> Vec<Row<'_>> {
        let mut bottom = LEGEND;
        let mut rows = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            let header = bottom + HEADER - LINE - 11.0;
            let mut top = bottom + HEADER;
            if index == 0 && !self.trouble.is_empty() {
                top += TROUBLE;
            }
            let bars = bars(&run.ticks, scales.end);
            let mut height = scales.height * self.highest(&bars);
            if index + 1 == self.runs.len() && self.capacity.is_some() {
                height += CAPACITY;
            }
            bottom = top + height.max(LEAST_PLOT);
            rows.push(Row {
                run,
                bars,
                header,
                top,
                bottom,
            });
        }
        rows
    }

    /// Returns the highest rate of a row.
    fn highest(&self, bars: &[Bar]) -> f64 {
        let rates = bars.iter().map(|bar| bar.all);
        rates.chain(self.capacity).fold(0.0, f64::max)
    }

    /// Shades the trouble in every row, and names it above the first.
    fn shade(&self, scales: &Scales, rows: &[Row<'_>]) -> Markup {
        let trouble = [self.trouble.start, self.trouble.end];
        let [start, end] = trouble.map(|at| scales.x(at.as_secs_f64()));
        html! {
            @for (index, row) in rows.iter().enumerate() {
                rect class="trouble" x=(number(start)) y=(number(row.top)) width=(number(end - start))
                    height=(number(row.bottom - row.top)) {}
                @if index == 0 {
                    text x=(number((start + end) / 2.0)) y=(number(row.top - 8.0)) text-anchor="middle" {
                        (self.trouble_name)
                    }
                }
            }
        }
    }
}

/// The scales that all rows share.
struct Scales {
    /// Where the time axis ends, in seconds.
    end: f64,
    /// Pixels for one request per second.
    height: f64,
    /// The distance between grid lines, in requests per second.
    step: f64,
}

impl Scales {
    fn of(timeline: &Timeline<'_>) -> Self {
        let longest = timeline.runs.iter().map(|run| run.ticks.len()).max();
        let longest = longest.unwrap_or_default() as f64 / 10.0;
        let end = longest.min(timeline.until.as_secs_f64()).max(0.1);
        let mut scales = Self {
            end,
            height: 1.0,
            step: 1.0,
        };
        let highest = timeline.runs.iter();
        let highest = highest.map(|run| timeline.highest(&bars(&run.ticks, end)));
        let highest: Vec<_> = highest.collect();
        scales.height = PLOT * highest.len() as f64 / highest.iter().sum::<f64>().max(1.0);
        scales.step = step(highest.into_iter().fold(1.0, f64::max));
        scales
    }

    fn x(&self, second: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * second.min(self.end) / self.end
    }
}

/// The requests during a period, per second.
pub(crate) struct Bar {
    /// In seconds.
    start: f64,
    pub(crate) succeeded: f64,
    pub(crate) all: f64,
}

/// Returns the width of the bars of a time axis that ends at this second, in ticks of 100 ms.
pub(crate) fn bar_ticks(end: f64) -> usize {
    if end > 20.0 { 10 } else { 1 }
}

/// Returns the bars up to this second.
pub(crate) fn bars(ticks: &[Tick], end: f64) -> Vec<Bar> {
    let width = bar_ticks(end);
    let per_second = 10.0 / width as f64;
    let bar = |(index, ticks): (usize, &[Tick])| Bar {
        start: index as f64 / per_second,
        succeeded: per_second * ticks.iter().map(|tick| tick.accepted).sum::<usize>() as f64,
        all: per_second * ticks.iter().map(|tick| tick.all()).sum::<usize>() as f64,
    };
    let bars = ticks.chunks(width).enumerate().map(bar);
    bars.take_while(|bar| bar.start < end).collect()
}

/// Returns a path of steps from the bottom to the height of each bar, which is `width` ticks wide.
pub(crate) fn area(
    bars: &[Bar],
    width: usize,
    x: impl Fn(f64) -> f64,
    y: impl Fn(&Bar) -> f64,
    bottom: f64,
) -> String {
    let bottom = number(bottom);
    let mut path = format!("M{} {bottom}", number(x(0.0)));
    let mut last = bottom.clone();
    for bar in bars {
        let (x, y) = (number(x(bar.start)), number(y(bar)));
        if y != last {
            write!(path, "H{x}V{y}").expect("a String accepts all text");
            last = y;
        }
    }
    let end = bars
        .last()
        .map_or(0.0, |last| last.start + width as f64 / 10.0);
    path + &format!("H{}V{bottom}Z", number(x(end)))
}

/// One run, and its position.
struct Row<'a> {
    run: &'a Run,
    bars: Vec<Bar>,
    /// The baseline of the line that names the stack. The line with its figures follows.
    header: f64,
    top: f64,
    bottom: f64,
}

impl Row<'_> {
    fn y(&self, scales: &Scales, rate: f64) -> f64 {
        self.bottom - scales.height * rate
    }

    fn draw(&self, scales: &Scales, capacity: Option<f64>) -> Markup {
        let y = |rate| number(self.y(scales, rate));
        let steps = (1..).map(|index| f64::from(index) * scales.step);
        // The label of a grid line at the very top would overlap the header.
        let grid = steps.take_while(|rate| self.y(scales, *rate) >= self.top + 0.5 * LETTER);
        // The capacity has a label, too.
        let hidden =
            |rate: f64| capacity.is_some_and(|it| scales.height * (it - rate).abs() < 0.9 * LETTER);
        html! {
            (self.header())
            (tick(0.0, self.bottom))
            @for rate in grid {
                path class="line" d=(format!("M{LEFT} {}H{RIGHT}", y(rate))) {}
                @if !hidden(rate) { (tick(rate, self.y(scales, rate))) }
            }
            path class="bad" d=(self.area(scales, |bar| bar.all)) {}
            path class="good" d=(self.area(scales, |bar| bar.succeeded)) {}
            path class="line" d=(format!("M{LEFT} {}H{RIGHT}", number(self.bottom))) {}
            @if let Some(capacity) = capacity {
                path class="capacity" d=(format!("M{LEFT} {}H{RIGHT}", y(capacity))) {}
                (tick(capacity, self.y(scales, capacity)))
            }
        }
    }

    /// Draws the name of the run, and its figures below it.
    fn header(&self) -> Markup {
        let run = self.run;
        let share = 100.0 * run.succeeded as f64 / run.calls.max(1) as f64;
        let share = match format!("{share:.0} %") {
            // Only all calls are 100 %.
            rounded if rounded == "100 %" || rounded == "0 %" => percent(run),
            rounded => rounded,
        };
        let class = run.is_ours().then_some("ours");
        html! {
            text x=(MARGIN) y=(number(self.header)) {
                tspan class=[class] { (run.stack) }
                tspan class="share" x=(MARGIN) dy=(LINE) { (share) } " of calls succeed, "
                (format!("{:.2} requests per call", run.per_call()))
            }
        }
    }

    /// Draws steps from the bottom line to the rate of each bar.
    fn area(&self, scales: &Scales, rate: impl Fn(&Bar) -> f64) -> String {
        let y = |bar: &Bar| self.y(scales, rate(bar));
        let width = bar_ticks(scales.end);
        area(&self.bars, width, |second| scales.x(second), y, self.bottom)
    }
}

/// Draws a label of the y axis.
fn tick(value: f64, y: f64) -> Markup {
    html! {
        text class="soft" x=(LEFT - 8.0) y=(number(y + 8.0)) text-anchor="end" { (rate(value)) }
    }
}

/// Formats a rate: "5,000/s".
pub(crate) fn rate(value: f64) -> String {
    match value.round() as usize {
        0 => "0".to_owned(),
        value => whole(value) + "/s",
    }
}

/// Returns a round step of which at most three fit under the highest rate.
pub(crate) fn step(highest: f64) -> f64 {
    let powers = (0..12).map(|power| 10f64.powi(power));
    let mut steps = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * power));
    steps.find(|step| highest / step < 4.0).unwrap_or(highest)
}

/// Returns zero and at most this many round seconds after it, up to the end.
pub(crate) fn seconds(end: f64, most: u32) -> impl Iterator<Item = f64> {
    let steps = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    ];
    let step = steps.into_iter().find(|step| end / step <= f64::from(most));
    let step = step.unwrap_or(end);
    let places = (0..=most).map(move |index| (f64::from(index) * step * 10.0).round() / 10.0);
    places.take_while(move |second| *second <= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::OURS;

    const SECOND: Duration = Duration::from_secs(1);

    fn run(stack: &'static str, ticks: Vec<Tick>) -> Run {
        Run {
            calls: 100,
            succeeded: 17,
            requests: 517,
            ticks,
            ..Run::empty(stack)
        }
    }

    fn drawn(trouble: Range<Duration>, capacity: Option<f64>, runs: &[&Run]) -> String {
        let timeline = Timeline {
            title: &["a title"],
            trouble: &trouble,
            trouble_name: "a stall",
            capacity,
            until: 4 * SECOND,
            runs,
        };
        timeline.alone()
    }

    #[test]
    fn an_area_goes_up_and_down_in_steps() {
        let tick = |accepted, refused| Tick { accepted, refused };
        let ticks = [tick(0, 0), tick(2, 1), tick(2, 1), tick(0, 0)];
        let scales = Scales {
            end: 0.4,
            height: 1.0,
            step: 10.0,
        };
        let row = Row {
            run: &run("a stack", vec![]),
            bars: bars(&ticks, scales.end),
            header: 0.0,
            top: 0.0,
            bottom: 100.0,
        };
        // 167.5 pixels per tick. One request in a tick is 10 requests per second.
        let all = row.area(&scales, |bar| bar.all);
        assert_eq!(all, "M110 100H277.5V70H612.5V100H780V100Z");
        let succeeded = row.area(&scales, |bar| bar.succeeded);
        assert_eq!(succeeded, "M110 100H277.5V80H612.5V100H780V100Z");
    }

    #[test]
    fn long_runs_are_averaged_over_seconds_and_cut_at_the_end() {
        let ticks = vec![
            Tick {
                accepted: 1,
                refused: 2
            };
            600
        ];
        let bars = bars(&ticks, 50.0);
        assert_eq!(bars.len(), 50);
        assert!(
            bars.iter()
                .all(|bar| (bar.succeeded, bar.all) == (10.0, 30.0))
        );
    }

    #[test]
    fn trouble_is_shaded_for_as_long_as_it_lasts() {
        let seen = run("a stack", vec![Tick::default(); 90]);
        let chart = drawn(SECOND..3 * SECOND, None, &[&seen]);
        // From 25 % to 75 % of the 4 s in the chart.
        let band = "<rect class=\"trouble\" x=\"277.5\"";
        assert!(
            chart.contains(band) && chart.contains("width=\"335\""),
            "{chart}"
        );
        assert!(chart.contains(">a stall<"), "{chart}");
        let calm = drawn(SECOND..SECOND, None, &[&seen]);
        assert!(!calm.contains("a stall"), "{calm}");
    }

    #[test]
    fn capacity_is_a_line_in_every_row_and_named_once() {
        let ticks = vec![Tick::default(); 40];
        let (one, other) = (run("a stack", ticks.clone()), run(OURS, ticks));
        let chart = drawn(SECOND..SECOND, Some(1000.0), &[&one, &other]);
        assert_eq!(chart.matches("class=\"capacity\"").count(), 2, "{chart}");
        let named = chart.matches("server capacity 1,000/s").count();
        assert_eq!(named, 1, "{chart}");
        // The grid line at 1,000/s has no label, because the capacity has one there.
        assert_eq!(chart.matches(">1,000/s<").count(), 2, "{chart}");
    }

    #[test]
    fn each_row_has_its_figures_and_ours_is_bold() {
        let ticks = vec![Tick::default(); 40];
        let (one, other) = (run("a stack", ticks.clone()), run(OURS, ticks));
        let chart = drawn(SECOND..SECOND, None, &[&one, &other]);
        let figures = "<tspan class=\"share\" x=\"20\" dy=\"34\">17 %</tspan> of calls succeed, 5.17 requests per call";
        assert_eq!(chart.matches(figures).count(), 2, "{chart}");
        assert!(chart.contains("<tspan>a stack</tspan>"), "{chart}");
        let bold = "<tspan class=\"ours\">reqwest-steady</tspan>";
        assert!(chart.contains(bold), "{chart}");
    }

    #[test]
    fn only_all_calls_are_100_percent_in_a_row() {
        let mut nearly = run("a stack", vec![Tick::default(); 40]);
        nearly.calls = 10_000;
        for (succeeded, share) in [(9_999, "99.9 %"), (10_000, "100 %"), (1, "0.1 %")] {
            nearly.succeeded = succeeded;
            let chart = drawn(SECOND..SECOND, None, &[&nearly]);
            assert!(
                chart.contains(&format!(">{share}</tspan> of calls")),
                "{chart}"
            );
        }
    }

    #[test]
    fn rates_are_round_and_few() {
        assert_eq!(step(8284.0), 5000.0);
        assert_eq!(step(3999.0), 1000.0);
        assert_eq!(step(1.0), 1.0);
        assert_eq!(
            [0.0, 50.0, 1000.0, 1_234_567.0].map(rate),
            ["0", "50/s", "1,000/s", "1,234,567/s"]
        );
    }

    #[test]
    fn seconds_are_round_and_few() {
        let places = |end| seconds(end, 8).collect::<Vec<_>>();
        assert_eq!(places(0.3), [0.0, 0.1, 0.2, 0.3]);
        assert_eq!(places(6.1), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(places(60.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert!(places(1_000_000.0).len() <= 9);
        let few = seconds(6.1, 5).collect::<Vec<_>>();
        assert_eq!(few, [0.0, 2.0, 4.0, 6.0]);
    }
}
