//! Lines of several clients in one plane, beside published ones.

use std::fmt::Write;

use maud::{Markup, html};

use crate::chart::number;
use crate::conclusion::whole;
use crate::plane::{self, Plane, PlaneTick, dot, legend};
use crate::timeline::step;

/// The colours of the lines, as classes of the page.
const CLASSES: [&str; 5] = ["line-1", "line-2", "line-3", "line-4", "line-5"];

/// A chart with a line for each client. All values are more than zero.
pub(crate) struct Lines {
    /// What the lines show, with figures.
    pub(crate) title: String,
    /// What the x axis counts.
    pub(crate) counted: &'static str,
    pub(crate) unit: Unit,
    /// What the published lines are.
    pub(crate) published: &'static str,
    pub(crate) series: Vec<Series>,
}

/// The unit of the y axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unit {
    /// A number of things with this name.
    Count(&'static str),
    /// Seconds, on a logarithmic axis.
    LogSeconds,
}

impl Unit {
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Self::Count(_) => whole(value as usize),
            Self::LogSeconds => format!("{value:.1} s"),
        }
    }
}

/// One line.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// What others have published for the same client.
    pub(crate) published: Vec<(f64, f64)>,
}

impl Lines {
    pub(crate) fn draw(&self) -> Markup {
        let scales = self.scales();
        let mut kinds: Vec<_> = self
            .series
            .iter()
            .zip(CLASSES)
            .map(|(series, class)| (class, series.name.clone()))
            .collect();
        if self
            .series
            .iter()
            .any(|series| !series.published.is_empty())
        {
            kinds.push(("published", self.published.to_owned()));
        }
        let inside = html! {
            @for (series, class) in self.series.iter().zip(CLASSES) {
                path class=(class) d=(scales.path(&series.points)) {}
            }
            @for (series, class) in self.series.iter().zip(CLASSES) {
                @if !series.published.is_empty() {
                    path class=(format!("theirs {class}")) d=(scales.path(&series.published)) {}
                }
                @for (x, y) in &series.published {
                    (dot(class, plane::x(scales.x(*x)), plane::y(scales.y(*y))))
                }
            }
        };
        let plane = Plane {
            name: self.title.clone(),
            y: scales.y_ticks(self.unit),
            x: scales.x_ticks(self.counted),
            inside,
        };
        html! {
            figure class="lines" {
                figcaption { (self.title) }
                (legend(&kinds))
                (plane.draw())
            }
        }
    }

    fn scales(&self) -> Scales {
        let all = || {
            let lines = self.series.iter();
            lines.flat_map(|series| series.points.iter().chain(&series.published))
        };
        let right = all().map(|(x, _)| *x).fold(1.0, f64::max);
        let highest = all().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max);
        let lowest = all().map(|(_, y)| *y).fold(highest, f64::min);
        match self.unit {
            Unit::Count(_) => {
                let step = step(highest);
                let top = step * (highest / step).ceil();
                Scales {
                    right,
                    low: 0.0,
                    top,
                    step: Some(step),
                }
            }
            Unit::LogSeconds => {
                let [low, top] = [lowest.log10().floor(), highest.log10().ceil()];
                // One decade at least, so that the axis has two ticks.
                Scales {
                    right,
                    low,
                    top: top.max(low + 1.0),
                    step: None,
                }
            }
        }
    }
}

struct Scales {
    right: f64,
    /// The lowest and the highest value of the y axis, or their exponents of 10.
    low: f64,
    top: f64,
    /// The distance between ticks of a linear axis.
    step: Option<f64>,
}

impl Scales {
    fn x(&self, value: f64) -> f64 {
        value / self.right
    }

    fn y(&self, value: f64) -> f64 {
        let value = match self.step {
            Some(_) => value,
            None => value.log10(),
        };
        (value - self.low) / (self.top - self.low)
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (x, y) in points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let (x, y) = (number(plane::x(self.x(*x))), number(plane::y(self.y(*y))));
            write!(path, "{letter}{x} {y}").expect("a String accepts all text");
        }
        path
    }

    fn x_ticks(&self, counted: &str) -> Vec<PlaneTick> {
        let step = step(self.right);
        let mut places: Vec<_> = (0..=(self.right / step) as u32)
            .map(|index| step * f64::from(index))
            .map(|value| (self.x(value), whole(value as usize)))
            .collect();
        if let Some((_, label)) = places.last_mut() {
            *label = format!("{label} {counted}");
        }
        places
    }

    fn y_ticks(&self, unit: Unit) -> Vec<PlaneTick> {
        let values: Vec<f64> = match self.step {
            Some(step) => (0..=(self.top / step).round() as u32)
                .map(|index| step * f64::from(index))
                .collect(),
            None => (self.low as i32..=self.top as i32)
                .map(|power| 10f64.powi(power))
                .collect(),
        };
        let label = |value: f64| match unit {
            Unit::Count(_) => whole(value as usize),
            Unit::LogSeconds => format!("{value} s"),
        };
        let mut ticks: Vec<_> = values
            .into_iter()
            .map(|value| (self.y(value), label(value)))
            .collect();
        if let (Unit::Count(unit), Some((_, label))) = (unit, ticks.last_mut()) {
            *label = format!("{label} {unit}");
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(unit: Unit, points: &[(f64, f64)], published: &[(f64, f64)]) -> Lines {
        Lines {
            title: "a title".to_owned(),
            counted: "clients",
            unit,
            published: "published",
            series: vec![Series {
                name: "a client".to_owned(),
                points: points.to_vec(),
                published: published.to_vec(),
            }],
        }
    }

    #[test]
    fn a_line_and_a_published_line_are_to_scale() {
        let lines = lines(
            Unit::Count("w"),
            &[(50.0, 100.0), (100.0, 200.0)],
            &[(50.0, 50.0), (100.0, 150.0)],
        );
        let drawn = lines.draw().into_string();
        assert!(
            drawn.contains("<path class=\"line-1\" d=\"M500 50L1000 0\""),
            "{drawn}"
        );
        let theirs = "<path class=\"theirs line-1\" d=\"M500 75L1000 25\"";
        assert!(drawn.contains(theirs), "{drawn}");
        assert!(drawn.contains("d=\"M1000 25h0\""), "{drawn}");
        for label in ["0", "100", "200 w", "50", "100 clients"] {
            assert!(
                drawn.contains(&format!(">{label}</text>")),
                "{label}: {drawn}"
            );
        }
    }

    #[test]
    fn seconds_are_logarithmic_with_a_tick_for_each_decade() {
        let lines = lines(Unit::LogSeconds, &[(1.0, 0.1), (2.0, 10.0)], &[]);
        let drawn = lines.draw().into_string();
        assert!(drawn.contains("d=\"M500 100L1000 0\""), "{drawn}");
        for label in ["0.1 s", "1 s", "10 s"] {
            assert!(
                drawn.contains(&format!(">{label}</text>")),
                "{label}: {drawn}"
            );
        }
        assert!(!drawn.contains("published"), "{drawn}");
    }
}
