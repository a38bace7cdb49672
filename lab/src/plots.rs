//! The charts of a page: requests over time, and the outcomes of calls.

use maud::{Markup, html};

use crate::chart::number;
use crate::conclusion::{percent, whole};
use crate::plane::{self, HEIGHT, Plane, PlaneTick, WIDTH, legend, x_axis};
use crate::results::{Results, Run};
use crate::timeline::{Bar, bar_ticks, bars, rate, seconds, step};

/// The most labels after zero of an x axis. More would overlap on a phone.
const MOST_TICKS: u32 = 5;

/// Draws the requests of each run over time. All runs have the same scales.
pub(crate) fn timelines(results: &Results) -> Markup {
    let scales = Scales::of(results);
    let mut kinds = vec![
        ("good", "requests that succeed, per second".to_owned()),
        ("bad", "wasted: refused, failed or too late".to_owned()),
    ];
    for (during, name) in &results.troubles {
        if !during.is_empty() {
            kinds.push(("trouble", (*name).to_owned()));
        }
    }
    if let Some(capacity) = results.capacity {
        kinds.push(("capacity", format!("the service can do {}", rate(capacity))));
    }
    html! {
        figure {
            figcaption { (busiest(results, &scales)) }
            (legend(&kinds))
            div class="plots" {
                @for (run, bars) in results.runs.iter().zip(&scales.bars) {
                    div class="plot" {
                        (heading(run))
                        (scales.plane(results, run, bars).draw())
                    }
                }
            }
        }
    }
}

/// Names a run and its figures above a plot.
fn heading(run: &Run) -> Markup {
    html! {
        h3 {
            (name(run))
            small { b { (percent(run)) } (format!(" succeed, {:.2} requests per call", run.per_call())) }
        }
    }
}

/// Shows the name of a client. Ours is bold.
pub(crate) fn name(run: &Run) -> Markup {
    html! { span class=(if run.is_ours() { "client ours" } else { "client" }) { (run.stack) } }
}

/// The title of the timelines: the highest bars of two runs.
fn busiest(results: &Results, scales: &Scales) -> String {
    let highest = |wanted: &Run| {
        let pairs = results.runs.iter().zip(&scales.bars);
        let mut bars = pairs.filter(|(run, _)| run.stack == wanted.stack);
        rate(bars.next().map_or(0.0, |(_, bars)| highest(bars)))
    };
    match results.pair() {
        Some([other, ours]) => format!(
            "The busiest {}: {} with {}, {} with {}",
            if bar_ticks(scales.end) == 1 {
                "100 ms"
            } else {
                "second"
            },
            highest(other),
            other.stack,
            highest(ours),
            ours.stack
        ),
        None => "No requests".to_owned(),
    }
}

fn highest(bars: &[Bar]) -> f64 {
    bars.iter().map(|bar| bar.all).fold(0.0, f64::max)
}

/// The scales that all plots share.
struct Scales {
    /// Where the time axis ends, in seconds.
    end: f64,
    /// The rate at the top of the y axis.
    top: f64,
    /// The distance between grid lines, in requests per second.
    step: f64,
    /// The bars of each run.
    bars: Vec<Vec<Bar>>,
}

impl Scales {
    fn of(results: &Results) -> Self {
        let longest = results.runs.iter().map(|run| run.ticks.len()).max();
        let end = (longest.unwrap_or_default() as f64 / 10.0).max(0.1);
        let bars: Vec<_> = results
            .runs
            .iter()
            .map(|run| bars(&run.ticks, end))
            .collect();
        let rates = bars.iter().map(|bars| highest(bars));
        let highest = rates.chain(results.capacity).fold(1.0, f64::max);
        let step = step(highest);
        let top = step * (highest / step).ceil();
        Self {
            end,
            top,
            step,
            bars,
        }
    }

    fn plane(&self, results: &Results, run: &Run, bars: &[Bar]) -> Plane {
        let place = |bar: f64| plane::x((bar / self.end).min(1.0));
        let height = |rate: f64| plane::y(rate / self.top);
        let area = |class, rate: fn(&Bar) -> f64| {
            let path = crate::timeline::area(
                bars,
                bar_ticks(self.end),
                place,
                |bar| height(rate(bar)),
                HEIGHT,
            );
            html! { path class=(class) d=(path) {} }
        };
        let ends = results
            .troubles
            .iter()
            .map(|(during, _)| [during.start, during.end].map(|at| place(at.as_secs_f64())));
        let inside = html! {
            @for [from, to] in ends {
                @if to > from {
                    rect class="trouble" x=(number(from)) y="0" width=(number(to - from)) height=(HEIGHT) {}
                }
            }
            (area("bad", |bar| bar.all))
            (area("good", |bar| bar.succeeded))
            @if let Some(capacity) = results.capacity {
                path class="capacity" d=(format!("M0 {}H{WIDTH}", number(height(capacity)))) {}
            }
        };
        let steps =
            (0..=(self.top / self.step).round() as u32).map(|index| self.step * f64::from(index));
        Plane {
            name: format!(
                "Requests per second over {} s with {}: at most {}; {} of calls succeed",
                number(self.end),
                run.stack,
                rate(highest(bars)),
                percent(run)
            ),
            y: steps.map(|value| (value / self.top, rate(value))).collect(),
            x: time_ticks(self.end),
            inside,
        }
    }
}

fn time_ticks(end: f64) -> Vec<PlaneTick> {
    let labelled = |second: f64| (second / end, format!("{second} s"));
    seconds(end, MOST_TICKS).map(labelled).collect()
}

/// Draws the outcomes of all calls and the wasted requests, with a row for each run.
pub(crate) fn outcomes(results: &Results) -> Markup {
    let kinds = [
        ("good", "succeeded"),
        ("bad", "gave up with a response"),
        ("none", "ended with an error"),
    ];
    let most = results
        .runs
        .iter()
        .map(|run| run.waste())
        .fold(0.0, f64::max);
    let step = fine_step(most);
    let top = step * (most / step).ceil().max(1.0);
    let steps = 0..=(top / step).round() as u32;
    let waste_ticks: Vec<_> = steps
        .map(|index| step * f64::from(index))
        .map(|value| (value / top, short(value)))
        .collect();
    let shares = [0, 50, 100].map(|share| (f64::from(share) / 100.0, format!("{share} %")));
    html! {
        figure {
            figcaption { (cheapest(results)) }
            (legend(&kinds.map(|(class, text)| (class, text.to_owned()))))
            div class="outcomes" {
                div class="outcome head" {
                    span class="panel" { "calls" }
                    span class="panel" { "wasted requests per call" }
                }
                @for run in &results.runs {
                    div class="outcome" {
                        (name(run))
                        (shares_bar(run, &kinds.map(|(class, _)| class)))
                        span class="value" { (percent(run)) }
                        svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
                            (grid(&waste_ticks))
                            rect class="bad" x="0" y="0" width=(number(WIDTH * run.waste() / top)) height="10" {}
                        }
                        span class="value" { (format!("{:.2}", run.waste())) }
                    }
                }
                div class="outcome axis" { (x_axis(&shares)) (x_axis(&waste_ticks)) }
            }
        }
    }
}

fn shares_bar(run: &Run, classes: &[&str]) -> Markup {
    let scale = WIDTH / run.calls.max(1) as f64;
    let counts = [run.succeeded, run.given_up(), run.errors];
    let name = format!(
        "{}: of {} calls, {} succeeded, {} gave up with a response, {} ended with an error",
        run.stack,
        whole(run.calls),
        whole(run.succeeded),
        whole(run.given_up()),
        whole(run.errors)
    );
    html! {
        svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(name) {
            @for (place, (class, count)) in classes.iter().zip(counts).enumerate() {
                @let before: usize = counts[..place].iter().sum();
                rect class=(class) x=(number(scale * before as f64)) y="0" width=(number(scale * count as f64))
                    height="10" {}
            }
        }
    }
}

/// Draws a vertical line for each tick.
fn grid(ticks: &[PlaneTick]) -> Markup {
    html! {
        @for (share, _) in ticks {
            path class="line" d=(format!("M{} 0V10", number(plane::x(*share)))) {}
        }
    }
}

/// The title of the outcomes: what two clients waste.
fn cheapest(results: &Results) -> String {
    match results.pair() {
        Some([other, ours]) => format!(
            "Wasted requests per call: {:.2} with {}, {:.2} with {}",
            other.waste(),
            other.stack,
            ours.waste(),
            ours.stack
        ),
        None => "No calls".to_owned(),
    }
}

/// Returns a round step of which at most three fit under the highest value, also below 1.
fn fine_step(highest: f64) -> f64 {
    if highest <= 0.0 {
        return 1.0;
    }
    let mut scale = 1.0;
    while highest * scale < 1.0 && scale < 1e6 {
        scale *= 10.0;
    }
    step(highest * scale) / scale
}

/// Formats a value without needless zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::results::{OURS, PEER, Tick};

    fn run(stack: &'static str, succeeded: usize, errors: usize, wasted: usize) -> Run {
        Run {
            calls: 100,
            succeeded,
            errors,
            requests: succeeded + wasted,
            wasted,
            ..Run::empty(stack)
        }
    }

    fn results(runs: Vec<Run>) -> Results {
        Results {
            runs,
            ..Results::empty()
        }
    }

    #[test]
    fn outcomes_are_shares_and_waste_is_to_scale() {
        let results = results(vec![run(PEER, 50, 25, 100), run(OURS, 0, 0, 200)]);
        let chart = outcomes(&results).into_string();
        let bars: Vec<_> = chart.split("<rect ").skip(1).collect();
        let has = |class: &str, x: f64, width: f64| {
            let bar = format!(
                "class=\"{class}\" x=\"{}\" y=\"0\" width=\"{}\"",
                number(x),
                number(width)
            );
            bars.iter().any(|it| it.starts_with(&bar))
        };
        // Half succeeded, a quarter gave up, a quarter failed.
        assert!(has("good", 0.0, 500.0), "{chart}");
        assert!(has("bad", 500.0, 250.0), "{chart}");
        assert!(has("none", 750.0, 250.0), "{chart}");
        // Nothing succeeded.
        assert!(has("bad", 0.0, 1000.0), "{chart}");
        // A waste of 1 is half as long as a waste of 2.
        assert!(
            chart.contains(">1.00<") && chart.contains(">2.00<"),
            "{chart}"
        );
        assert!(has("bad", 0.0, 500.0), "{chart}");
        // Both axes have ticks.
        assert!(
            chart.contains(">50 %<") && chart.contains(">100 %<"),
            "{chart}"
        );
        let title = "Wasted requests per call: 1.00 with reqwest-retry, 2.00 with reqwest-steady";
        assert!(chart.contains(title), "{chart}");
    }

    #[test]
    fn only_our_names_are_bold() {
        let results = results(vec![run(PEER, 1, 1, 1), run(OURS, 1, 1, 1)]);
        let chart = timelines(&results).into_string();
        assert!(
            chart.contains("<span class=\"client\">reqwest-retry</span>"),
            "{chart}"
        );
        assert!(
            chart.contains("<span class=\"client ours\">reqwest-steady</span>"),
            "{chart}"
        );
    }

    #[test]
    fn all_plots_have_the_same_ticks_with_units() {
        let mut busy = run(PEER, 1, 1, 1);
        busy.ticks = vec![
            Tick {
                accepted: 80,
                refused: 20
            };
            90
        ];
        let mut calm = run(OURS, 1, 1, 1);
        calm.ticks = vec![
            Tick {
                accepted: 1,
                refused: 0
            };
            10
        ];
        let chart = timelines(&results(vec![busy, calm])).into_string();
        for label in ["0", "500/s", "1,000/s", "0 s", "2 s", "8 s"] {
            let drawn = chart.matches(&format!(">{label}</text>")).count();
            assert_eq!(drawn, 2, "{label}: {chart}");
        }
        let title = "The busiest 100 ms: 1,000/s with reqwest-retry, 10/s with reqwest-steady";
        assert!(chart.contains(title), "{chart}");
    }

    #[test]
    fn trouble_and_capacity_are_drawn_and_named_once() {
        let second = Duration::from_secs(1);
        let mut results = results(vec![run(PEER, 1, 1, 1), run(OURS, 1, 1, 1)]);
        results.runs[0].ticks = vec![
            Tick {
                accepted: 1,
                refused: 1
            };
            40
        ];
        results.troubles = vec![(second..3 * second, "service down")];
        results.capacity = Some(40.0);
        let chart = timelines(&results).into_string();
        // From 25 % to 75 % of 4 s.
        let band = "<rect class=\"trouble\" x=\"250\" y=\"0\" width=\"500\"";
        assert_eq!(chart.matches(band).count(), 2, "{chart}");
        assert_eq!(chart.matches("service down").count(), 1, "{chart}");
        // Twice for each plot would be four, and one is in the legend.
        assert_eq!(chart.matches("class=\"capacity\"").count(), 3, "{chart}");
        assert_eq!(
            chart.matches("the service can do 40/s").count(),
            1,
            "{chart}"
        );
        // A trouble after the end is not drawn.
        results.troubles = vec![(9 * second..10 * second, "service down")];
        assert!(
            !timelines(&results)
                .into_string()
                .contains("<rect class=\"trouble\" x")
        );
    }

    #[test]
    fn steps_are_fine_enough_for_small_values() {
        assert_eq!(
            [0.0, 0.0004, 0.013, 0.35, 1.8, 5.496].map(fine_step),
            [1.0, 0.0002, 0.01, 0.1, 1.0, 2.0]
        );
        assert_eq!(
            [0.0, 0.5, 10.0, 0.0002].map(short),
            ["0", "0.5", "10", "0.0002"]
        );
    }
}
