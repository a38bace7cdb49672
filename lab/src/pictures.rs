//! The pictures that the README shows.

use std::path::Path;

use anyhow::{Context, Result};

use crate::chart::timeline_alone;
use crate::results::Run;
use crate::scenarios::{Scenario, find};

struct Picture {
    file: &'static str,
    scenario: &'static str,
    title: &'static str,
    /// Which stacks, and what they are called here.
    stacks: &'static [(&'static str, &'static str)],
}

const SEED: u64 = 1;

const PEER: (&str, &str) = (crate::scenarios::PEER, "reqwest-retry, same waits");
const STEADY: (&str, &str) = (
    crate::scenarios::THROTTLE,
    "reqwest-steady: both middlewares",
);

const PICTURES: [Picture; 2] = [
    Picture {
        file: "herd.svg",
        scenario: "herd",
        title: "500 controllers of one process ask at once; the service is down for 3 s",
        stacks: &[
            ("exponential, no jitter", "exponential, no jitter"),
            PEER,
            STEADY,
        ],
    },
    Picture {
        file: "metastable.svg",
        scenario: "metastable",
        title: "800 calls/s on a worker of 1000/s, which stalls from second 10 to 13",
        stacks: &[PEER, STEADY],
    },
];

/// Draws all of them into this directory.
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
        let scenario = find(self.scenario).expect("a scenario that there is");
        let run = |(stack, name): &(&str, &'static str)| Run {
            stack: name,
            ..run(scenario, stack)
        };
        let runs: Vec<_> = self.stacks.iter().map(run).collect();
        let runs: Vec<_> = runs.iter().collect();
        timeline_alone(self.title, &scenario.trouble, &runs)
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

    #[test]
    fn the_pictures_of_the_readme_are_what_the_code_draws() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let directory = root.join("docs/pictures");
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        for picture in PICTURES {
            let kept = std::fs::read_to_string(directory.join(picture.file)).unwrap_or_default();
            assert!(
                kept == picture.draw(),
                "{} is no longer what the code draws: run `{COMMAND}` and look at it",
                picture.file
            );
            let shown = format!("docs/pictures/{}", picture.file);
            assert!(readme.contains(&shown), "{shown} is not shown");
        }
        assert!(readme.contains(COMMAND), "{COMMAND} is not said");
    }

    const COMMAND: &str = "cargo run --release -p lab -- --pictures docs/pictures";
}
