//! Shows what retries do to a service, in virtual time, with the real middlewares.
//!
//! `cargo run --release -p lab` runs every scenario with every kind of client, prints a table, and
//! writes a page with charts. `cargo run --release -p lab -- herd` runs one scenario, and `random` runs
//! random services. `try --service FILE --settings FILE` compares clients at a service that you describe, one of them
//! with your settings, and `serve` does so in a browser. The same seed gives the same table.

mod chart;
mod conclusion;
mod contention;
mod lines;
mod page;
mod pictures;
mod plane;
mod plots;
mod results;
mod scenarios;
mod serve;
mod table;
mod timeline;
mod trial;
mod yours;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use lab::service::Service;
use lab::study::Study;
use lab::troubles::TroubleTable;
use page::Page;
use results::{Results, Run};
use scenarios::{MEANINGS, SCENARIOS, Scenario};
use table::Table;
use yours::Yours;

/// Shows what retries do to a service, in virtual time, with the real middlewares.
#[derive(Parser)]
#[command(
    name = "lab",
    override_usage = "lab [SCENARIO] [--clients N] [--seed N] [--out FILE]\n       lab --pictures DIRECTORY\n       \
                      lab try --service FILE [--settings FILE] [--seed N] [--out FILE]\n       lab serve [--port N]\n       lab random [--count N] [--seed N] [--only INDEX] \
                      [--threads N]\n       lab troubles [--seed N]",
    args_conflicts_with_subcommands = true
)]
struct Args {
    /// Runs only this scenario. By default, all scenarios run.
    #[arg(value_name = "SCENARIO", value_parser = PossibleValuesParser::new(SCENARIOS.iter().map(|one| one.name)))]
    scenario: Option<String>,
    /// Replaces the number of calls of each scenario: at once, per second, or per round.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    clients: Option<u32>,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The file for the page with charts.
    #[arg(long, value_name = "FILE", default_value = "lab.html")]
    out: PathBuf,
    /// Only draws the pictures of the documentation, into this directory.
    #[arg(long, value_name = "DIRECTORY", exclusive = true)]
    pictures: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<SubCommand>,
}

#[derive(Subcommand)]
enum SubCommand {
    /// Compares clients at a service that a file describes. Examples are in `lab/examples`.
    Try {
        /// The description, in TOML.
        #[arg(long, value_name = "FILE")]
        service: PathBuf,
        /// The settings of one more client, in TOML. `docs/steady.toml` shows all. The seed replaces theirs.
        #[arg(long, value_name = "FILE")]
        settings: Option<PathBuf>,
        /// The seed of all random numbers.
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// The file for the page with charts.
        #[arg(long, value_name = "FILE", default_value = "lab.html")]
        out: PathBuf,
    },
    /// Serves a page on loopback, on which you choose or describe a service, move settings and see the charts change.
    Serve {
        /// The port. 0 is any free port.
        #[arg(long, value_name = "N", default_value_t = 8321)]
        port: u16,
    },
    /// Compares clients at random services.
    Random {
        /// The number of services.
        #[arg(long, value_name = "N", default_value_t = 300)]
        count: usize,
        /// The seed of all random numbers.
        #[arg(long, value_name = "N", default_value_t = 21)]
        seed: u64,
        /// Runs only the service with this index.
        #[arg(long, value_name = "INDEX")]
        only: Option<usize>,
        /// The number of threads.
        #[arg(long, value_name = "N", default_value_t = 1)]
        threads: usize,
    },
    /// Compares small clients during outages and at limits.
    Troubles {
        /// The seed of all random numbers.
        #[arg(long, value_name = "N", default_value_t = 21)]
        seed: u64,
    },
}

impl SubCommand {
    #[allow(clippy::disallowed_methods, reason = "it measures real time")]
    fn run(&self) -> Result<()> {
        let started = std::time::Instant::now();
        match *self {
            Self::Try {
                ref service,
                ref settings,
                seed,
                ref out,
            } => return try_service(service, settings.as_deref(), seed, out),
            Self::Serve { port } => return serve::serve(port),
            Self::Troubles { seed } => println(&TroubleTable { seed }.to_string()),
            Self::Random {
                count,
                seed,
                only,
                threads,
            } => {
                let indices = only.map_or(0..count, |index| index..index + 1);
                println(&Study::new(seed, indices, threads).to_string());
            }
        }
        println(&format!(
            "It took {:.1} s.",
            started.elapsed().as_secs_f64()
        ));
        Ok(())
    }
}

/// Prints the table of a described service, and writes its page.
fn try_service(file: &Path, settings: Option<&Path>, seed: u64, out: &Path) -> Result<()> {
    let service = read(file, Service::from_toml)?;
    let yours = settings
        .map(|file| read(file, Yours::from_toml))
        .transpose()?;
    let page = PageFile::create(out)?;
    println(MEANING);
    let results = [match &yours {
        Some(yours) => trial::compare(&service, seed, Some(&|seed| yours.steady(seed)), None),
        None => trial::compare(&service, seed, None, None),
    }];
    println(&Table(&results[0]).to_string());
    let service = file.display();
    let mut command = format!("cargo run --release -p lab -- try --service {service}");
    if let Some(settings) = settings {
        command += &format!(" --settings {}", settings.display());
    }
    let meaning = settings.map(|file| format!("the same with the settings of {}", file.display()));
    let drawn = Page {
        results: &results,
        meanings: &trial::meanings(meaning.as_deref()),
        command: &command,
    };
    page.finish(&drawn)
}

/// Reads a file. An error names it.
fn read<T, E>(file: &Path, parse: impl Fn(&str) -> Result<T, E>) -> Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| format!("{} is invalid", file.display()))
}

/// A page that replaces an older one when it is whole.
struct PageFile<'a> {
    file: File,
    part: OsString,
    out: &'a Path,
}

impl<'a> PageFile<'a> {
    /// Checks before the work that the page can be written.
    fn create(out: &'a Path) -> Result<Self> {
        let shown = out.display();
        ensure!(!out.is_dir(), "cannot write {shown}: it is a directory");
        let mut part = out.to_owned().into_os_string();
        part.push(".part");
        let file = File::create(&part).with_context(|| format!("cannot write {shown}"))?;
        Ok(Self { file, part, out })
    }

    fn finish(mut self, page: &Page<'_>) -> Result<()> {
        let unwritable = || format!("cannot write {}", self.out.display());
        self.file
            .write_all(page.draw().as_bytes())
            .with_context(unwritable)?;
        std::fs::rename(&self.part, self.out).with_context(unwritable)?;
        println(&charts_are_in(self.out));
        Ok(())
    }
}

impl Args {
    fn read(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let args = Self::try_parse_from(line)?;
        for scenario in args.scenarios() {
            let (clients, most) = (args.clients(scenario), scenario.most_clients);
            if clients > most {
                let text = format!("{clients} clients: {} takes at most {most}", scenario.name);
                return Err(Self::command().error(ErrorKind::ValueValidation, text));
            }
        }
        Ok(args)
    }

    fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        let wanted = |scenario: &&Scenario| match &self.scenario {
            Some(name) => name == scenario.name,
            None => true,
        };
        SCENARIOS.iter().filter(wanted)
    }

    fn clients(&self, scenario: &Scenario) -> usize {
        self.clients
            .map_or(scenario.clients, |clients| clients as usize)
    }
}

fn main() -> Result<()> {
    let args = Args::read(std::env::args_os()).unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        eprintln!("{}", with_usage(&error));
        std::process::exit(2);
    });
    if let Some(command) = &args.command {
        return command.run();
    }
    if let Some(directory) = &args.pictures {
        return pictures::draw(directory);
    }
    let page = PageFile::create(&args.out)?;
    println(MEANING);
    let all = run(&args);
    page.finish(&page_of(&all))
}

fn page_of(all: &[Results]) -> Page<'_> {
    Page {
        results: all,
        meanings: &MEANINGS,
        command: "cargo run --release -p lab",
    }
}

const MEANING: &str = "Wasted: requests that did not lead to a successful call. Peak: the most requests within 100 ms.\n";

fn charts_are_in(out: &Path) -> String {
    format!("The charts are in {}", out.display())
}

/// Prints a line. Ignores a closed pipe, because the page must still be written.
fn println(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Returns the error and the usage line, which some errors of clap lack.
fn with_usage(error: &clap::Error) -> String {
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    format!("{what}\n\n{}", Args::command().render_usage())
}

/// Runs every requested scenario with every stack.
fn run(args: &Args) -> Vec<Results> {
    let stacks = args.scenarios().map(|scenario| scenario.stacks.len());
    let progress = ProgressBar::new(stacks.sum::<usize>() as u64).with_style(style());
    let results = args.scenarios().map(|scenario| {
        let clients = args.clients(scenario);
        let run = |stack: &(&'static str, _)| {
            progress.set_message(format!("{}: {}", scenario.name, stack.0));
            let run = Run::of(scenario, clients, args.seed, *stack);
            progress.inc(1);
            run
        };
        let runs = scenario.stacks.iter().map(run).collect();
        let results = Results::of(scenario, clients, args.seed, runs);
        // A terminal shows the table above the bar, and a pipe gets the table alone.
        progress.suspend(|| println(&Table(&results).to_string()));
        results
    });
    let results = results.collect();
    progress.finish_and_clear();
    results
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}  {msg}");
    style.expect("a valid template")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<Args, clap::Error> {
        Args::read(line.split_whitespace())
    }

    /// Compares all figures of all scenarios with the checked-in table.
    #[test]
    fn the_table_matches_the_checked_in_file() {
        let (tables, page) = printed("lab");
        let last = charts_are_in(&args("lab").unwrap().out);
        let (kept, now) = (
            include_str!("table.txt"),
            format!("{MEANING}\n{tables}{last}\n"),
        );
        let changed: Vec<_> = now.lines().filter(|line| !kept.contains(line)).collect();
        assert!(
            kept == now,
            "`cargo run --release -p lab > lab/src/table.txt` would change it: {changed:#?}"
        );
        let between = |before, after| {
            let parts = page.split(before).skip(1);
            parts
                .map(move |rest: &str| rest.split(after).next().unwrap())
                .collect::<Vec<_>>()
        };
        // In the list and below it.
        let names = SCENARIOS.iter().map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(between("<section id=\"", "\""), names);
        assert_eq!(between("<a href=\"#", "\""), names);
        for scenario in SCENARIOS {
            let section = page
                .split(&format!("<section id=\"{}\">", scenario.name))
                .nth(1);
            let section = section
                .and_then(|rest| rest.split("</section>").next())
                .expect(scenario.name);
            let plots = section.matches("<div class=\"plot\">").count();
            let outcomes = section.matches("<div class=\"outcome\">").count();
            let rows = section.matches("<tr role=\"row\">").count();
            let clients = scenario.stacks.len();
            assert_eq!(
                [plots, outcomes, rows],
                [clients, clients, 1 + clients],
                "{}",
                scenario.name
            );
        }
    }

    /// Returns the table and the page.
    fn printed(line: &str) -> (String, String) {
        let all = run(&args(line).unwrap());
        let table = all.iter().map(|results| format!("{}\n", Table(results)));
        (table.collect(), page_of(&all).draw())
    }

    #[test]
    fn the_same_seed_gives_the_same_table_and_page() {
        for scenario in SCENARIOS {
            // A small simulation depends on the seed as much as a large one.
            let line = |seed| format!("lab {} --clients 60 --seed {seed}", scenario.name);
            let (first, second) = (printed(&line(1)), printed(&line(1)));
            assert!(first == second, "{}\n{}", first.0, second.0);
            let other = printed(&line(2));
            assert_ne!(first.0, other.0);
            assert_ne!(first.1, other.1);
        }
    }

    #[test]
    fn clients_and_seed_come_from_the_arguments() {
        let all = run(&args("lab burst --clients 12 --seed 7").unwrap());
        assert_eq!(all.len(), 1);
        assert_eq!((&*all[0].callers, all[0].seed), ("12 callers", 7));
        assert!(all[0].runs.iter().all(|run| run.calls == 12));
        let [first, .., last] = &all[0].runs[..] else {
            panic!("too few stacks");
        };
        assert_eq!(
            (first.stack, first.succeeded, first.requests),
            ("no retry", 5, 12)
        );
        assert_eq!((last.stack, last.succeeded), (results::OURS, 12));
    }

    #[test]
    fn wrong_arguments_are_named_and_get_a_usage_line() {
        for (line, named) in [
            ("lab nosuch", "nosuch"),
            ("lab --clients 0", "'0'"),
            ("lab herd --clients 10001", "10001"),
            ("lab --clients 1001", "contention"),
            ("lab --clients -3", "-3"),
            ("lab --seed soon", "soon"),
            ("lab --bogus", "--bogus"),
            ("lab herd drain", "drain"),
            ("lab herd --pictures here", "--pictures"),
            ("lab try", "--service"),
            ("lab try --settings a.toml", "--service"),
            ("lab try --service a.toml --clients 3", "--clients"),
        ] {
            let text = with_usage(&args(line).err().expect(line));
            assert!(text.contains(named), "{line}: {text}");
            assert!(text.contains("Usage: lab [SCENARIO]"), "{line}: {text}");
        }
    }
}
