//! The plane of a chart on a page: its axes with ticks, and what is drawn between them.
//!
//! Only the drawing is stretched to the width of the page. The texts are outside of it, so they keep their size on a
//! phone. Nothing needs a `style` attribute, which a strict policy of a page forbids.

use maud::{Markup, html};

use crate::chart::number;

/// The width and height of the drawing, in its units.
pub(crate) const WIDTH: f64 = 1000.0;
pub(crate) const HEIGHT: f64 = 100.0;

/// A position from 0 to 1, and its label.
pub(crate) type PlaneTick = (f64, String);

/// A chart with axes.
pub(crate) struct Plane {
    /// What it shows, for a reader who does not see it.
    pub(crate) name: String,
    /// Ticks of the y axis, from the bottom to the top.
    pub(crate) y: Vec<PlaneTick>,
    /// Ticks of the x axis, from left to right.
    pub(crate) x: Vec<PlaneTick>,
    /// The drawing, [`WIDTH`] wide and [`HEIGHT`] high.
    pub(crate) inside: Markup,
}

impl Plane {
    pub(crate) fn draw(&self) -> Markup {
        html! {
            div class="plane" {
                svg class="ticks y" aria-hidden="true" {
                    @for (share, label) in &self.y {
                        text x="100%" y=(percent(1.0 - share)) dx="-6" dy=".35em" text-anchor="end" { (label) }
                    }
                }
                svg class="drawing" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                    aria-label=(self.name) {
                    @for (share, _) in &self.y {
                        path class="line" d=(format!("M0 {}H{WIDTH}", number(y(*share)))) {}
                    }
                    (self.inside)
                }
                (x_axis(&self.x))
            }
        }
    }
}

/// Draws the labels below a drawing.
pub(crate) fn x_axis(ticks: &[PlaneTick]) -> Markup {
    html! {
        svg class="ticks x" aria-hidden="true" {
            @for (share, label) in ticks {
                text x=(percent(*share)) y="1em" text-anchor=(anchor(*share)) { (label) }
            }
        }
    }
}

/// Keeps labels at the ends of an axis inside.
fn anchor(share: f64) -> &'static str {
    match share {
        share if share < 0.05 => "start",
        share if share > 0.95 => "end",
        _ => "middle",
    }
}

fn percent(share: f64) -> String {
    format!("{}%", number(100.0 * share))
}

pub(crate) fn x(share: f64) -> f64 {
    WIDTH * share
}

/// Counts from the bottom.
pub(crate) fn y(share: f64) -> f64 {
    HEIGHT * (1.0 - share)
}

/// Draws coloured signs with their meanings. They wrap where the page is narrow.
pub(crate) fn legend(kinds: &[(&str, String)]) -> Markup {
    html! {
        ul class="legend" {
            @for (class, text) in kinds {
                li {
                    svg class="sign" aria-hidden="true" viewBox="0 0 14 14" {
                        @match sign(class) {
                            Sign::Area => rect class=(class) width="14" height="14" rx="2" {},
                            Sign::Line => path class=(class) d="M0 7H14" {},
                            Sign::DottedLine => {
                                path class=(format!("theirs {class}")) d="M-2 7H16" {}
                                (dot(class, 7.0, 7.0))
                            },
                        }
                    }
                    (text)
                }
            }
        }
    }
}

enum Sign {
    Area,
    Line,
    DottedLine,
}

fn sign(class: &str) -> Sign {
    match class {
        "good" | "bad" | "none" | "trouble" => Sign::Area,
        "published" => Sign::DottedLine,
        _ => Sign::Line,
    }
}

/// Draws a ring. It is a line of no length with round ends, because a circle would be stretched with the drawing.
pub(crate) fn dot(class: &str, x: f64, y: f64) -> Markup {
    let place = format!("M{} {}h0", number(x), number(y));
    html! {
        path class=(format!("dot {class}")) d=(place) {}
        path class="dot hole" d=(place) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_size_and_stay_inside() {
        let plane = Plane {
            name: "a chart".to_owned(),
            y: vec![(0.0, "0".to_owned()), (1.0, "50/s".to_owned())],
            x: vec![
                (0.0, "0 s".to_owned()),
                (0.5, "1 s".to_owned()),
                (1.0, "2 s".to_owned()),
            ],
            inside: html! {},
        };
        let drawn = plane.draw().into_string();
        // The drawing is stretched and has no text.
        let stretched = drawn.split("preserveAspectRatio").nth(1).unwrap();
        let stretched = stretched.split("</svg>").next().unwrap();
        assert!(!stretched.contains("<text"), "{drawn}");
        for label in [
            "y=\"100%\" dx=\"-6\" dy=\".35em\" text-anchor=\"end\">0<",
            "y=\"0%\" dx=\"-6\" dy=\".35em\" text-anchor=\"end\">50/s<",
            "x=\"0%\" y=\"1em\" text-anchor=\"start\">0 s<",
            "x=\"50%\" y=\"1em\" text-anchor=\"middle\">1 s<",
            "x=\"100%\" y=\"1em\" text-anchor=\"end\">2 s<",
        ] {
            assert!(drawn.contains(label), "{label}: {drawn}");
        }
        // Grid lines at the bottom and at the top.
        assert!(
            drawn.contains("d=\"M0 100H1000\"") && drawn.contains("d=\"M0 0H1000\""),
            "{drawn}"
        );
        assert!(!drawn.contains("style"), "{drawn}");
    }
}
