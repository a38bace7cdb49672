//! The pictures that the README and the guide show.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::results::{self, OURS, Run};
use crate::scenarios::{RETRY, Scenario, find};
use crate::timeline::Timeline;
use lab::workloads::STALLED_WORKER_RATE;

struct Picture {
    file: &'static str,
    scenario: &'static str,
    /// The message of the picture, line by line.
    title: &'static [&'static str],
    /// What the picture calls the trouble.
    trouble: &'static str,
    /// How many requests per second the service can handle.
    capacity: Option<f64>,
    /// Where the time axis ends.
    until: Duration,
    /// The stacks to draw, by their names in the scenario and in the picture.
    stacks: &'static [(&'static str, &'static str)],
}

const SEED: u64 = 1;

const PEER: (&str, &str) = (results::PEER, results::PEER);
const ALONE: (&str, &str) = (RETRY, RETRY);
const STEADY: (&str, &str) = (OURS, OURS);

const PICTURES: [Picture; 4] = [
    Picture {
        file: "herd.svg",
        scenario: "herd",
        title: &[
            "500 calls start during a 3 s outage: with",
            "reqwest-steady, all succeed without bursts",
        ],
        trouble: "3 s outage",
        capacity: None,
        until: Duration::MAX,
        stacks: &[("exponential, no jitter", "without jitter"), PEER, STEADY],
    },
    Picture {
        file: "metastable.svg",
        scenario: "metastable",
        title: &[
            "Plain retries turn a 3 s stall into a lasting outage;",
            "with reqwest-steady, every call succeeds",
        ],
        trouble: "3 s stall",
        capacity: Some(STALLED_WORKER_RATE),
        // Calls start until then. After that, only the last retries arrive.
        until: Duration::from_secs(60),
        stacks: &[PEER, STEADY],
    },
    Picture {
        file: "fleet.svg",
        scenario: "fleet",
        title: &[
            "4,000 small clients, a minute of outage: our",
            "retry alone soon adds nothing to the load",
        ],
        trouble: "60 s outage",
        capacity: Some(2000.0),
        until: Duration::from_secs(80),
        stacks: &[PEER, ALONE],
    },
    Picture {
        file: "overload.svg",
        scenario: "overload",
        title: &[
            "Twice the rate limit for 10 s: after a 429,",
            "our retries wait until other calls succeed",
        ],
        trouble: "",
        capacity: Some(500.0),
        until: Duration::MAX,
        stacks: &[PEER, ALONE, STEADY],
    },
];

/// Draws all pictures into this directory.
pub(crate) fn draw(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for picture in PICTURES {
        let path = directory.join(picture.file);
        let drawn = picture.draw();
        std::fs::write(&path, drawn).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

impl Picture {
    fn draw(&self) -> String {
        let scenario = find(self.scenario).expect("an existing scenario");
        let run = |(stack, name): &(&str, &'static str)| Run {
            stack: name,
            ..run(scenario, stack)
        };
        let runs: Vec<_> = self.stacks.iter().map(run).collect();
        let runs: Vec<_> = runs.iter().collect();
        let timeline = Timeline {
            title: self.title,
            trouble: &scenario.trouble,
            trouble_name: self.trouble,
            capacity: self.capacity,
            until: self.until,
            runs: &runs,
        };
        timeline.alone()
    }
}

fn run(scenario: &'static Scenario, stack: &str) -> Run {
    let found = scenario.stacks.iter().find(|(name, _)| *name == stack);
    let (name, build) = *found.expect("a stack of the scenario");
    Run::of(scenario, scenario.clients, SEED, (name, build))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = "cargo run --release -p lab -- --pictures docs/pictures";

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
    }

    fn read(path: impl AsRef<Path>) -> String {
        std::fs::read_to_string(root().join(path)).unwrap_or_default()
    }

    #[test]
    fn the_pictures_are_what_the_code_draws() {
        for picture in PICTURES {
            assert!(
                read(Path::new("docs/pictures").join(picture.file)) == picture.draw(),
                "{} is not what the code draws: run `{COMMAND}` and look at the picture",
                picture.file
            );
        }
        let texts = read("README.md") + &read("CONTRIBUTING.md");
        assert!(texts.contains(COMMAND), "`{COMMAND}` is not documented");
    }

    /// Returns what `before` and `after` enclose in a text, each time.
    fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
        let parts = text.split(before).skip(1);
        parts
            .map(|rest| rest.split(after).next().unwrap())
            .collect()
    }

    #[test]
    fn our_rows_are_bold_and_named_like_the_crate() {
        for picture in PICTURES {
            let svg = read(Path::new("docs/pictures").join(picture.file));
            assert!(svg.contains(".ours { font-weight: 700; }"), "{svg}");
            let bold = between(&svg, "<tspan class=\"ours\">", "<");
            let plain = between(&svg, "<tspan>", "<");
            assert!(!bold.is_empty(), "{}", picture.file);
            for name in &bold {
                assert!([OURS, RETRY].contains(name), "{}: {name}", picture.file);
            }
            for name in &plain {
                let others = ["reqwest-retry", "without jitter"];
                assert!(others.contains(name), "{}: {name}", picture.file);
            }
            assert_eq!(bold.len() + plain.len(), picture.stacks.len());
        }
    }

    #[test]
    fn no_two_texts_of_a_picture_are_at_the_same_place() {
        for picture in PICTURES {
            let svg = picture.draw();
            let texts = between(&svg, "<text ", "</text>");
            let mut places: Vec<_> = texts
                .iter()
                .map(|text| ["x=\"", "y=\""].map(|name| between(text, name, "\"")[0]))
                .collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), texts.len(), "{}: {texts:#?}", picture.file);
        }
    }

    /// The guide shows pictures as wide as the window.
    #[test]
    fn letters_have_at_least_12_px_in_a_window_of_400_px() {
        for picture in PICTURES {
            let svg = picture.draw();
            let width: f64 = between(&svg, " width=\"", "\"")[0].parse().unwrap();
            let sizes = [
                between(&svg, "font-size: ", "px"),
                between(&svg, "font: ", "px"),
            ]
            .concat();
            assert!(sizes.len() >= 3, "{sizes:?}");
            for size in sizes {
                let size: f64 = size.parse().unwrap();
                assert!(size * 400.0 / width >= 12.0, "{}: {size}", picture.file);
            }
        }
    }

    #[test]
    fn readme_and_guide_show_the_pictures() {
        let readme = read("README.md");
        assert!(readme.contains("docs/pictures/metastable.svg"));
        let guide = std::fs::read_dir(root().join("docs/guide")).unwrap();
        let guide = guide.map(|page| read(page.unwrap().path()));
        let texts = guide.chain([readme]).collect::<String>();
        for picture in PICTURES {
            assert!(
                texts.contains(picture.file),
                "{} is not shown",
                picture.file
            );
        }
    }

    #[test]
    fn the_titles_about_the_retry_alone_are_true() {
        let [peer, alone] = [PEER, ALONE].map(|(stack, _)| run(find("fleet").unwrap(), stack));
        // The last 30 s of the outage, in ticks of 100 ms.
        let late = |run: &Run| run.ticks[350..650].iter().map(|it| it.all()).sum::<usize>();
        // 30,000 calls start in that time.
        assert!(late(&alone) < 31_000, "{}", late(&alone));
        assert!(late(&peer) > 175_000, "{}", late(&peer));
        let alone = run(find("overload").unwrap(), ALONE.0);
        assert!(1000 * alone.succeeded >= 995 * alone.calls);
        assert!(alone.requests < 22 * alone.calls / 10);
    }

    #[test]
    fn the_title_of_the_outage_is_true() {
        let scenario = find("metastable").unwrap();
        let [peer, steady] = [PEER, STEADY].map(|(stack, _)| run(scenario, stack));
        let stall = scenario.trouble.start.as_secs() as usize * 10;
        let succeeded = |run: &Run| run.ticks[stall..].iter().map(|tick| tick.accepted).sum();
        let later: usize = succeeded(&peer);
        assert_eq!(
            later, 0,
            "reqwest-retry had successes after the stall began"
        );
        assert_eq!(steady.succeeded, steady.calls);
    }
}
