//! Writes settings as Rust: one builder per section, with a method for each setting.
//!
//! Each setting has the name of a method of its builder, so a new setting needs nothing here unless its value has a
//! new type.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use toml::{Table, Value};

/// A function that builds a `Steady` with these settings.
pub(super) fn function(settings: &Table) -> String {
    let mut code = Code::default();
    code.needs("reqwest_steady::ConfigError");
    code.needs("reqwest_steady::Steady");
    let mut steady = Chain::new("Steady::builder()");
    for (name, value) in settings {
        let argument = match name.as_str() {
            "preset" => code.preset(text(value)),
            section => code.section(section, inner(value)),
        };
        steady.call(name, &argument);
    }
    steady.call("build", "");
    code.write(&steady)
}

/// A builder and the calls of its methods.
struct Chain {
    start: String,
    calls: Vec<String>,
}

impl Chain {
    fn new(start: impl Into<String>) -> Self {
        Self {
            start: start.into(),
            calls: Vec::new(),
        }
    }

    fn call(&mut self, method: &str, arguments: &str) {
        self.calls.push(format!("{method}({arguments})"));
    }

    /// Writes it in the form of rustfmt, unless a line gets too long.
    fn write(&self, indent: &str) -> String {
        let calls = self.calls.iter().map(|call| format!(".{call}"));
        let line: String = calls.clone().collect();
        if self.calls.len() < 2 {
            return format!("{}{line}", self.start);
        }
        let separator = format!("\n{indent}    ");
        let lines: Vec<_> = calls.collect();
        format!("{}{separator}{}", self.start, lines.join(&separator))
    }
}

/// The sections of a file, with the types whose builders they set.
const SECTIONS: [(&str, &str); 3] = [
    ("retry", "reqwest_steady::RetryMiddleware"),
    ("throttle", "reqwest_steady::ThrottleMiddleware"),
    ("coalesce", "reqwest_steady::CoalesceMiddleware"),
];

/// The parts of the function.
#[derive(Default)]
struct Code {
    uses: BTreeSet<&'static str>,
    /// Builders by their names, in the order of the function.
    variables: Vec<(&'static str, Chain)>,
}

impl Code {
    /// Imports a type.
    fn needs(&mut self, path: &'static str) {
        self.uses.insert(path);
    }

    /// Adds a variable and returns its name.
    fn variable(&mut self, name: &'static str, chain: Chain) -> String {
        self.variables.push((name, chain));
        name.to_owned()
    }

    fn section(&mut self, name: &str, settings: &Table) -> String {
        let (variable, path) = SECTIONS
            .into_iter()
            .find(|(section, _)| *section == name)
            .unwrap_or_else(|| panic!("no builder for the section {name}"));
        let builder = split(path).1;
        self.needs(path);
        let mut chain = Chain::new(format!("{builder}::builder()"));
        for (name, value) in settings {
            match name.as_str() {
                "status" => {
                    for (status, class) in inner(value) {
                        let argument = self.status(status, text(class));
                        chain.call("status", &argument);
                    }
                }
                "ignore_header" => each(&mut chain, name, value),
                _ => {
                    let argument = self.argument(variable, name, value);
                    chain.call(name, &argument);
                }
            }
        }
        self.variable(variable, chain)
    }

    fn argument(&mut self, section: &str, name: &str, value: &Value) -> String {
        match name {
            "backoff" => self.backoff(inner(value)),
            "budget_per_host" => self.budget(inner(value)),
            "secrets" => self.secrets(inner(value)),
            "log_levels" => self.log_levels(section, inner(value)),
            "rate" => rate(inner(value)),
            "auto_key" => self.variant("reqwest_steady::AutoKey", "AutoKey", value),
            "key_by" => self.variant("reqwest_steady::KeyBy", "KeyBy", value),
            "idempotency_header" | "attempt_header" => format!("{:?}", text(value)),
            _ => self.plain(value),
        }
    }

    /// A number, a switch or a duration.
    fn plain(&mut self, value: &Value) -> String {
        match value {
            Value::Float(number) => format!("{number:?}"),
            // Integers above those of TOML are text.
            Value::String(text) if text.parse::<u64>().is_ok() => text.clone(),
            Value::String(text) => {
                self.needs("std::time::Duration");
                duration(text)
            }
            other => other.to_string(),
        }
    }

    fn backoff(&mut self, settings: &Table) -> String {
        self.needs("reqwest_steady::Backoff");
        let mut chain = Chain::new(match settings.get("base") {
            Some(base) => format!("Backoff::exponential({})", self.plain(base)),
            None => "Backoff::default()".to_owned(),
        });
        for (name, value) in settings {
            match name.as_str() {
                "base" => {}
                "alone" => chain.call(name, ""),
                "jitter" => {
                    let jitter = self.variant("reqwest_steady::Jitter", "Jitter", value);
                    chain.call(name, &jitter);
                }
                _ => {
                    let argument = self.plain(value);
                    chain.call(name, &argument);
                }
            }
        }
        self.variable("backoff", chain)
    }

    fn budget(&mut self, settings: &Table) -> String {
        self.needs("reqwest_steady::Budget");
        let mut chain = Chain::new("Budget::builder()");
        for (name, value) in settings {
            let argument = match name.as_str() {
                "deposit_on" => self.variant("reqwest_steady::Deposit", "Deposit", value),
                _ => self.plain(value),
            };
            chain.call(name, &argument);
        }
        self.variable("budget", chain)
    }

    fn secrets(&mut self, settings: &Table) -> String {
        self.needs("reqwest_steady::dead_letter::Secrets");
        let mut chain = Chain::new("Secrets::new()");
        for (name, value) in settings {
            each(&mut chain, name, value);
        }
        self.variable("secrets", chain)
    }

    fn log_levels(&mut self, section: &str, settings: &Table) -> String {
        self.needs("reqwest_steady::observe::LogLevels");
        self.needs("tracing::level_filters::LevelFilter");
        let mut chain = Chain::new("LogLevels::default()");
        for (name, value) in settings {
            let level = text(value).to_uppercase();
            chain.call(name, &format!("LevelFilter::{level}"));
        }
        let name = match section {
            "retry" => "retry_levels",
            _ => "throttle_levels",
        };
        self.variable(name, chain)
    }

    fn status(&mut self, status: &str, class: &str) -> String {
        self.needs("reqwest::StatusCode");
        self.needs("reqwest_steady::StatusClass");
        let class = camel_case(class);
        format!("StatusCode::from_u16({status}).unwrap(), StatusClass::{class}")
    }

    fn preset(&mut self, name: &str) -> String {
        self.needs("reqwest_steady::Preset");
        let variant = match name {
            "openai" => "OpenAi".to_owned(),
            "github" => "GitHub".to_owned(),
            name => camel_case(name),
        };
        format!("Preset::{variant}")
    }

    /// A choice, alone or with a value.
    fn variant(&mut self, path: &'static str, name: &str, value: &Value) -> String {
        self.needs(path);
        match value {
            Value::Table(table) => {
                let (variant, value) = table.iter().next().expect("a choice with a value");
                format!("{name}::{}({})", camel_case(variant), self.plain(value))
            }
            other => format!("{name}::{}", camel_case(text(other))),
        }
    }

    fn write(&self, result: &Chain) -> String {
        let mut lines = vec![self.imports(), String::new()];
        lines.push(
            "/// Builds the middlewares. `ClientBuilderExt::with_steady` adds them to a client."
                .to_owned(),
        );
        lines.push("fn steady() -> Result<Steady, ConfigError> {".to_owned());
        for (name, chain) in &self.variables {
            lines.push(format!("    let {name} = {};", chain.write("    ")));
        }
        lines.push(format!("    {}", result.write("    ")));
        lines.push("}\n".to_owned());
        lines.join("\n")
    }

    /// Imports of the standard library come first, and those of one module share a line.
    fn imports(&self) -> String {
        let (std, rest): (Vec<_>, Vec<_>) =
            self.uses.iter().partition(|it| it.starts_with("std::"));
        let mut lines: Vec<_> = std.iter().map(|path| format!("use {path};")).collect();
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let rest: Vec<_> = rest.into_iter().map(|path| split(path)).collect();
        for types in rest.chunk_by(|one, other| one.0 == other.0) {
            let module = types[0].0;
            let names: Vec<_> = types.iter().map(|(_, name)| *name).collect();
            lines.push(match &names[..] {
                [name] => format!("use {module}::{name};"),
                names => format!("use {module}::{{{}}};", names.join(", ")),
            });
        }
        lines.join("\n")
    }
}

/// Splits the path of a type into its module and its name.
fn split(path: &'static str) -> (&'static str, &'static str) {
    path.rsplit_once("::").expect("a path of a type")
}

/// Calls a method once for each text of a list.
fn each(chain: &mut Chain, method: &str, list: &Value) {
    for one in list.as_array().expect("a list") {
        chain.call(method, &format!("{:?}", text(one)));
    }
}

fn rate(settings: &Table) -> String {
    let limit = text(&settings["limit"]);
    let per_second: f64 = limit
        .strip_suffix("/s")
        .and_then(|number| number.parse().ok())
        .expect("a rate per second");
    format!("{per_second:?}, {}", settings["burst"])
}

/// Writes a duration in the largest unit in which it is whole.
fn duration(text: &str) -> String {
    let duration: Duration = SpanParser::new()
        .parse_unsigned_duration(text)
        .expect("a duration");
    let nanos = duration.as_nanos();
    for (unit, length) in [
        ("secs", 1_000_000_000),
        ("millis", 1_000_000),
        ("micros", 1000),
    ] {
        let count = nanos / length;
        if count * length == nanos {
            return format!("Duration::from_{unit}({count})");
        }
    }
    let (seconds, rest) = (duration.as_secs(), duration.subsec_nanos());
    format!("Duration::new({seconds}, {rest})")
}

/// The name of a variant: "host_and_path" is `HostAndPath`.
fn camel_case(name: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    name.split('_').map(capital).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn inner(value: &Value) -> &Table {
    value.as_table().expect("a table")
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use reqwest_steady::{ConfigError, Steady};

    use super::super::{Yours, difference};
    use super::*;

    /// Each setting with a value that is not its default.
    pub(in super::super) const EVERY_SETTING: &str = include_str!("every_setting.toml");
    const EVERY_SETTING_IN_RUST: &str = include_str!("every_setting.rs");

    /// The code itself, so that it must compile.
    mod every_setting {
        include!("every_setting.rs");

        pub(super) fn build() -> Result<Steady, ConfigError> {
            steady()
        }
    }

    fn function_of(settings: &str) -> String {
        Yours::from_toml(settings)
            .unwrap_or_else(|error| panic!("{error}: {settings}"))
            .to_rust()
    }

    /// Also shows that each method exists, because the file is compiled.
    #[test]
    fn the_code_of_every_setting_is_the_compiled_file() {
        let written = function_of(EVERY_SETTING);
        assert!(
            written == EVERY_SETTING_IN_RUST,
            "yours/every_setting.rs should be:\n{written}"
        );
    }

    #[test]
    fn the_compiled_code_builds_the_same_settings() -> Result<(), ConfigError> {
        let of_file = Yours::from_toml(EVERY_SETTING).unwrap();
        let of_code: Steady = every_setting::build()?;
        let of_code = of_code.settings();
        let wrong = difference(&super::super::table(&of_code), of_file.all());
        assert_eq!(wrong, Table::new());
        assert_eq!(of_code, of_file.settings);
        Ok(())
    }

    /// Those of the commented file of the documentation, which has all settings.
    #[test]
    fn the_compiled_code_has_every_setting() {
        let documented = include_str!("../../../docs/steady.toml");
        // A setting that is off by default is a comment: `# deadline = "60s"`.
        let is_name = |name: &&str| name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
        let names: BTreeSet<_> = documented
            .lines()
            .filter_map(|line| line.trim_start_matches("# ").split_once(" = "))
            .map(|(name, _)| name)
            .filter(is_name)
            .collect();
        assert!(names.len() > 45, "{names:?}");
        for name in names {
            let in_code = match name {
                "base" => "Backoff::exponential(".to_owned(),
                name => format!(".{name}("),
            };
            assert!(EVERY_SETTING_IN_RUST.contains(&in_code), "{name}");
        }
    }

    #[test]
    fn the_code_imports_what_it_names_and_nothing_else() {
        for settings in [
            "",
            "retry.max_retries = 3",
            "retry.backoff.jitter = { additive = '1ms' }",
            "throttle.rate = { limit = '10/s', burst = 5 }",
            "preset = 's3'\ncoalesce.max_body = 5",
            EVERY_SETTING,
        ] {
            let code = function_of(settings);
            let (imports, rest) = code.split_once("\n///").unwrap();
            let (_, body) = rest.split_once("fn ").unwrap();
            let is_word = |letter: char| letter.is_alphanumeric();
            let imported: BTreeSet<_> = imports
                .split(|letter| !is_word(letter))
                .filter(|word| word.starts_with(char::is_uppercase))
                .collect();
            // A type stands before `::`, or in the signature.
            let before = |(at, _)| body[..at].rsplit(|letter| !is_word(letter)).next().unwrap();
            let mut named: BTreeSet<_> = body.match_indices("::").map(before).collect();
            named.extend(["Steady", "ConfigError"]);
            assert_eq!(imported, named, "{code}");
        }
    }

    #[test]
    fn one_changed_setting_is_one_line() {
        assert_eq!(
            function_of("retry.max_retries = 3\nretry.backoff.base = '100ms'"),
            "use std::time::Duration;\n\n\
             use reqwest_steady::{Backoff, ConfigError, RetryMiddleware, Steady};\n\n\
             /// Builds the middlewares. `ClientBuilderExt::with_steady` adds them to a client.\n\
             fn steady() -> Result<Steady, ConfigError> {\n    \
                 let backoff = Backoff::exponential(Duration::from_millis(100));\n    \
                 let retry = RetryMiddleware::builder()\n        \
                     .backoff(backoff)\n        \
                     .max_retries(3);\n    \
                 Steady::builder()\n        \
                     .retry(retry)\n        \
                     .build()\n\
             }\n"
        );
    }

    #[test]
    fn durations_have_the_largest_whole_unit() {
        for (text, code) in [
            ("2m", "Duration::from_secs(120)"),
            ("0s", "Duration::from_secs(0)"),
            ("1.5s", "Duration::from_millis(1500)"),
            ("20us", "Duration::from_micros(20)"),
            ("1s 1ns", "Duration::new(1, 1)"),
        ] {
            assert_eq!(duration(text), code);
        }
    }

    /// No text of a file can add code.
    #[test]
    fn texts_are_quoted() {
        let header = "coalesce.ignore_header = ['x-a']\nretry.secrets.header = ['\"); panic!(\"']";
        let code = function_of(header);
        assert!(code.contains(r#".header("\"); panic!(\"")"#), "{code}");
    }
}
