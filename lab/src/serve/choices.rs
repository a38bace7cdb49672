//! The services that a reader can start from: the scenarios of the lab, and some usual services.

/// A service to start from.
pub(super) struct Choice {
    /// The name of its file, and of its scenario if it is one.
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// How large it is, if it is a scenario.
    size: Option<&'static str>,
}

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../examples/", $name, ".toml"))
    };
}

const WHOLE: &str = "of the lab";

/// The scenarios that a limit, faults and a load describe, in the order of the lab. The first one is shown.
///
/// Those with more calls than a run may have are smaller. `contention` is missing: its service keeps the version of a
/// row, which no limit does.
pub(super) const SCENARIOS: [Choice; 8] = [
    scenario(
        "metastable",
        text!("metastable"),
        "with a tenth of its calls",
    ),
    scenario("drain", text!("drain"), WHOLE),
    scenario("herd", text!("herd"), WHOLE),
    scenario("fleet", text!("fleet"), "with a twentieth of its clients"),
    scenario("overload", text!("overload"), "with half of its calls"),
    scenario("blackout", text!("blackout"), "with a tenth of its calls"),
    scenario("burst", text!("burst"), WHOLE),
    scenario("agents", text!("agents"), WHOLE),
];

pub(super) const SERVICES: [Choice; 5] = [
    service("small-api", text!("small-api")),
    service("outage", text!("outage")),
    service("github-like", text!("github-like")),
    service("slow-model", text!("slow-model")),
    service("flaky", text!("flaky")),
];

const fn scenario(name: &'static str, text: &'static str, size: &'static str) -> Choice {
    Choice {
        name,
        text,
        size: Some(size),
    }
}

const fn service(name: &'static str, text: &'static str) -> Choice {
    Choice {
        name,
        text,
        size: None,
    }
}

impl Choice {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        let mut all = SCENARIOS.iter().chain(&SERVICES);
        all.find(|choice| choice.name == name)
    }

    /// Says what the lab concludes from the whole scenario. Empty if it is none.
    pub(super) fn note(&self) -> String {
        let Some(size) = self.size else {
            return String::new();
        };
        let conclusion = conclusion(self.name);
        format!(
            "The scenario {} {size}. The lab concludes: {conclusion}.",
            self.name
        )
    }
}

/// Reads the conclusion of a scenario from the table of the lab, below the line that begins with its name.
fn conclusion(scenario: &str) -> &'static str {
    let mut lines = include_str!("../table.txt").lines();
    lines.find(|line| line.starts_with(&format!("{scenario}: ")));
    lines.next().expect("the table has every scenario")
}

#[cfg(test)]
mod tests {
    use lab::service::Service;
    use reqwest_steady::testing::Outcome;

    use super::*;
    use crate::results::{OURS, PEER};
    use crate::scenarios;

    #[test]
    fn the_choices_are_the_scenarios_but_contention() {
        let names = |choices: &[Choice]| choices.iter().map(|it| it.name).collect::<Vec<_>>();
        let all: Vec<_> = scenarios::SCENARIOS.iter().map(|it| it.name).collect();
        let (last, others) = all.split_last().unwrap();
        assert_eq!((names(&SCENARIOS), *last), (others.to_vec(), "contention"));
        for choice in SCENARIOS {
            let service = Service::from_toml(choice.text).unwrap();
            let scenario = scenarios::find(choice.name).unwrap();
            assert_eq!(service.name, scenario.topic);
            let end = format!("The lab concludes: {}.", conclusion(choice.name));
            assert!(choice.note().ends_with(&end), "{}", choice.note());
        }
        let note = Choice::find("burst").unwrap().note();
        assert!(
            note.contains("9 writes at once: reqwest-steady is done after 0.17 s"),
            "{note}"
        );
        assert_eq!(SERVICES.map(|it| it.note()), [""; 5]);
    }

    /// Returns when each request arrived, and its status.
    fn arrivals(outcome: &Outcome) -> Vec<(std::time::Duration, Option<u16>)> {
        let arrivals = outcome.arrivals.0.iter();
        arrivals.map(|it| (it.at, it.status)).collect()
    }

    #[test]
    fn whole_choices_and_the_fleet_are_the_scenarios() {
        for (name, clients) in [
            ("drain", 1000),
            ("herd", 500),
            ("fleet", 200),
            ("burst", 9),
            ("agents", 300),
        ] {
            let service = Service::from_toml(Choice::find(name).unwrap().text).unwrap();
            let scenario = scenarios::find(name).unwrap();
            for client in [PEER, OURS] {
                let stack = scenario.stacks.iter().find(|(stack, _)| *stack == client);
                let (_, stack) = stack.unwrap();
                let described = service.simulation().seed(1).run(stack);
                let known = (scenario.simulation)(clients).seed(1).run(stack);
                assert!(arrivals(&described) == arrivals(&known), "{name}, {client}");
            }
        }
    }

    /// For the clients that the page compares. The table has the share of successes and the requests per call.
    #[test]
    fn smaller_choices_have_about_the_figures_of_the_scenarios() {
        for name in ["metastable", "overload", "blackout"] {
            let service = Service::from_toml(Choice::find(name).unwrap().text).unwrap();
            let scenario = scenarios::find(name).unwrap();
            let table = include_str!("../table.txt")
                .split(&format!("\n{name}: "))
                .nth(1)
                .unwrap();
            for client in ["no retry", PEER, OURS] {
                let stack = scenario.stacks.iter().find(|(stack, _)| *stack == client);
                let (_, stack) = stack.unwrap();
                let row = table
                    .lines()
                    .find_map(|line| line.strip_prefix(&format!("  {client}  ")));
                let figures: Vec<&str> = row.unwrap().split_whitespace().collect();
                let [share, per_call] =
                    [figures[1], figures[4]].map(|it| it.parse::<f64>().unwrap());
                let outcome = service.simulation().seed(1).run(stack);
                let found = 100.0 * outcome.succeeded() as f64 / outcome.calls.len() as f64;
                assert!(
                    (found - share).abs() < 5.0,
                    "{name}, {client}: {found} of {share}"
                );
                let near = (outcome.requests_per_call() - per_call).abs() < 0.1 * per_call + 0.02;
                assert!(
                    near,
                    "{name}, {client}: {} of {per_call}",
                    outcome.requests_per_call()
                );
            }
        }
    }
}
