//! Forms of a service and of settings: their fields as data, their values, and the TOML that they make.

mod service;
pub(super) mod settings;

use std::collections::BTreeMap;

use lab::service::ServiceError;
use maud::{Markup, html};
use toml::{Table, Value};

/// Values of fields, by their path in the file.
pub(super) type Values = BTreeMap<String, String>;

/// Groups of fields, in the order of the page and of the file.
pub(super) struct Form {
    pub(super) groups: Vec<Group>,
    /// What empty fields mean, by their path. The page shows it in the field.
    pub(super) defaults: Values,
}

pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) fields: Vec<Field>,
}

/// One value of a file.
pub(super) struct Field {
    /// The place in the file, such as `limit.rate`.
    pub(super) path: &'static str,
    pub(super) label: &'static str,
    pub(super) help: &'static str,
    pub(super) input: Input,
    /// The value if the file has none, so that another kind works at once.
    pub(super) value: &'static str,
    /// Appears only if the field with this path has one of these values, or any value if there are none.
    pub(super) only: Option<(&'static str, &'static [&'static str])>,
}

pub(super) enum Input {
    /// Written in quotes.
    Text,
    /// Written as it is, if it is a number.
    Number,
    /// One of these values, each with its meaning.
    Choice(&'static [(&'static str, &'static str)]),
}

impl Field {
    fn text(path: &'static str, label: &'static str, help: &'static str) -> Self {
        Self {
            path,
            label,
            help,
            input: Input::Text,
            value: "",
            only: None,
        }
    }

    fn number(path: &'static str, label: &'static str, help: &'static str) -> Self {
        Self {
            input: Input::Number,
            ..Self::text(path, label, help)
        }
    }

    fn choice(
        path: &'static str,
        label: &'static str,
        choices: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            input: Input::Choice(choices),
            ..Self::text(path, label, "")
        }
    }

    fn or(self, value: &'static str) -> Self {
        Self { value, ..self }
    }

    fn only(self, path: &'static str, values: &'static [&'static str]) -> Self {
        let only = Some((path, values));
        Self { only, ..self }
    }

    /// Returns the text to write, unless the field does not appear.
    fn appearing<'a>(&self, values: &'a Values) -> Option<&'a str> {
        let value = values.get(self.path)?.trim();
        let appears = match self.only {
            None => true,
            Some((path, wanted)) => {
                let other = values.get(path).map_or("", |other| other.trim());
                match wanted {
                    [] => !other.is_empty(),
                    wanted => wanted.contains(&other),
                }
            }
        };
        (appears && !value.is_empty()).then_some(value)
    }

    /// Returns whether the value needs the whole width.
    fn is_long(&self) -> bool {
        match self.input {
            Input::Text => self.path == "name",
            Input::Number => false,
            Input::Choice(choices) => choices.iter().any(|(_, meaning)| meaning.len() > 15),
        }
    }

    /// Returns the text as a value of TOML.
    fn read(&self, text: &str) -> Value {
        let number = match (&self.input, text.contains('.')) {
            (Input::Number, true) => text.parse().map(Value::Float).ok(),
            (Input::Number, false) => text.parse().map(Value::Integer).ok(),
            _ => None,
        };
        number
            .filter(|_| is_number(text))
            .unwrap_or_else(|| Value::from(text))
    }

    fn draw(&self, values: &Values, default: Option<&String>) -> Markup {
        let value = values.get(self.path).map_or(self.value, String::as_str);
        let help = format!("{}-help", self.path);
        let described = (!self.help.is_empty()).then_some(&help);
        let (watched, wanted) = self.only.unzip();
        html! {
            div class=(if self.is_long() { "field long" } else { "field" }) data-only=[watched] data-values=[wanted.map(|wanted| wanted.join(" "))] {
                label for=(self.path) { (self.label) }
                @match &self.input {
                    Input::Choice(choices) => {
                        select id=(self.path) name=(self.path) aria-describedby=[described] data-default=[default] {
                            @for (choice, meaning) in *choices {
                                option value=(choice) selected[*choice == value] { (meaning) }
                            }
                        }
                    }
                    Input::Text => {
                        input id=(self.path) name=(self.path) value=(value) aria-describedby=[described]
                            data-default=[default] placeholder=[default] autocomplete="off" spellcheck="false";
                    }
                    Input::Number => {
                        input id=(self.path) name=(self.path) value=(value) aria-describedby=[described]
                            data-default=[default] placeholder=[default] inputmode="decimal" autocomplete="off";
                    }
                }
                @if described.is_some() { small id=(help) { (self.help) } }
            }
        }
    }
}

/// TOML has the same numbers as JSON, and more. Those are written as text, so that an error names them.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    digits(whole) && digits(fraction) && (whole == "0" || !whole.starts_with('0'))
}

/// Collects the values of a table, by their path.
pub(super) fn flatten(prefix: &str, table: &Table, values: &mut Values) {
    for (name, value) in table {
        let path = match prefix {
            "" => name.clone(),
            prefix => format!("{prefix}.{name}"),
        };
        match value {
            Value::Table(table) => flatten(&path, table, values),
            Value::String(text) => {
                values.insert(path, text.clone());
            }
            Value::Float(number) => {
                values.insert(path, number.to_string());
            }
            other => {
                values.insert(path, other.to_string());
            }
        }
    }
}

impl Form {
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.groups.iter().flat_map(|group| &group.fields)
    }

    /// Draws all groups with these values.
    pub(super) fn draw(&self, values: &Values) -> Markup {
        html! {
            @for group in &self.groups {
                fieldset {
                    legend { (group.title) }
                    @for field in &group.fields { (field.draw(values, self.defaults.get(field.path))) }
                }
            }
        }
    }

    /// Returns the values of the fields that appear, with their paths.
    ///
    /// # Errors
    ///
    /// Returns an error for a value that no field has.
    fn read(&self, values: &Values) -> Result<Vec<(&'static str, Value)>, ServiceError> {
        let fields = || self.fields();
        if let Some(path) = values
            .keys()
            .find(|path| fields().all(|field| field.path != **path))
        {
            return Err(ServiceError {
                path: path.clone(),
                message: "no field has this name".to_owned(),
            });
        }
        let read = |field: &Field| Some((field.path, field.read(field.appearing(values)?)));
        Ok(fields().filter_map(read).collect())
    }

    /// Writes the values as TOML, without the fields that do not appear.
    ///
    /// # Errors
    ///
    /// Returns an error for a value that no field has.
    pub(super) fn toml(&self, values: &Values) -> Result<String, ServiceError> {
        let mut text = String::new();
        let mut table = "";
        for (path, value) in self.read(values)? {
            let (its_table, name) = path.rsplit_once('.').unwrap_or(("", path));
            if its_table != table {
                text += &format!("\n[{its_table}]\n");
                table = its_table;
            }
            text += &format!("{name} = {value}\n");
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lab::service::Service;

    use super::super::choices::{Choice, SCENARIOS, SERVICES};
    use super::super::response::values;
    use super::*;

    fn toml(pairs: &[(&str, &str)]) -> Result<String, ServiceError> {
        let pairs = pairs
            .iter()
            .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()));
        Form::service().toml(&pairs.collect())
    }

    #[test]
    fn every_example_survives_the_form() {
        for Choice { name, text, .. } in SCENARIOS.iter().chain(&SERVICES) {
            let service = Service::from_toml(text).unwrap();
            let written = Form::service().toml(&values(&service)).unwrap();
            assert_eq!(
                Service::from_toml(&written),
                Ok(service),
                "{name}: {written}"
            );
        }
    }

    #[test]
    fn the_form_has_a_field_for_every_setting() {
        let form = Form::service();
        let fields: BTreeSet<_> = form.fields().map(|field| field.path).collect();
        let mut settings = BTreeSet::new();
        for choice in SCENARIOS.iter().chain(&SERVICES) {
            settings.extend(values(&Service::from_toml(choice.text).unwrap()).into_keys());
        }
        let settings: BTreeSet<_> = settings.iter().map(String::as_str).collect();
        assert_eq!(fields, settings);
    }

    /// So a kind that is chosen works at once.
    #[test]
    fn the_first_values_of_all_kinds_are_valid() {
        let form = Form::service();
        let choices = |wanted: &str| match form
            .fields()
            .find(|field| field.path == wanted)
            .unwrap()
            .input
        {
            Input::Choice(choices) => choices.iter().map(|(choice, _)| *choice),
            _ => panic!("{wanted} is no choice"),
        };
        for limit in choices("limit.kind") {
            for load in choices("load.kind") {
                let mut values: Values = form
                    .fields()
                    .map(|field| (field.path.to_owned(), field.value.to_owned()))
                    .collect();
                values.insert("limit.kind".to_owned(), limit.to_owned());
                values.insert("load.kind".to_owned(), load.to_owned());
                let text = form.toml(&values).unwrap();
                Service::from_toml(&text)
                    .unwrap_or_else(|error| panic!("{limit}, {load}: {error}\n{text}"));
            }
        }
    }

    #[test]
    fn values_become_toml_in_tables() {
        let text = toml(&[
            ("name", "a \"quoted\" name"),
            ("jitter", "0.5"),
            ("limit.kind", "window"),
            ("limit.rate", " 5/s "),
            ("limit.window", ""),
            ("limit.burst", "7"),
            ("faults.outage.from", ""),
            ("faults.outage.to", "9s"),
            ("faults.stall.from", "1s"),
            ("faults.stall.to", "2s"),
        ]);
        assert_eq!(
            text.unwrap(),
            "name = 'a \"quoted\" name'\njitter = 0.5\n\n[limit]\nkind = \"window\"\nrate = \"5/s\"\n\n[faults.stall]\n\
             from = \"1s\"\nto = \"2s\"\n"
        );
        let error = toml(&[("limit.ratte", "5/s")]).unwrap_err();
        assert_eq!(error.to_string(), "limit.ratte: no field has this name");
    }

    /// Nothing that is written into a field can add another setting.
    #[test]
    fn wrong_numbers_are_named_and_cannot_break_out() {
        for wrong in [
            "1\nburst = 5",
            "0x10",
            "01",
            "1e5",
            "nan",
            "\"",
            "1 # 2",
            ".5",
            "--1",
            "1.",
            "'''",
        ] {
            let text = toml(&[("jitter", wrong)]).unwrap();
            let error = Service::from_toml(&text).unwrap_err();
            assert_eq!(error.path, "jitter", "{wrong}: {error}");
        }
        for right in ["0", "-3", "0.25", "10"] {
            assert_eq!(
                toml(&[("jitter", right)]).unwrap(),
                format!("jitter = {right}\n")
            );
        }
    }
}
