//! The page that the server shows.

use lab::service::Service;
use maud::{DOCTYPE, PreEscaped, html};

use super::choices::{Choice, SCENARIOS, SERVICES};
use super::form::Form;
use super::form::settings;
use super::response::values;
use crate::page::STYLE;
use crate::yours::Yours;

const FORM_STYLE: &str = "
.columns { display: grid; grid-template-columns: 22rem minmax(0, 1fr); gap: 1.25rem; align-items: start; }
.columns main section { margin-top: 0; }
form { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem;
  position: sticky; top: 1rem; max-height: calc(100vh - 2rem); overflow-y: auto; scroll-padding: 1rem; }
fieldset { border: 0; border-top: 1px solid var(--line); margin: .75rem 0 0; padding: .5rem 0 0; min-width: 0; }
legend { font-weight: 600; padding: 0 .5rem 0 0; }
.field { display: grid; grid-template-columns: minmax(0, 1fr) 9.5rem; gap: 0 .5rem; align-items: center;
  margin-top: .35rem; font-size: .9rem; }
.field.long { grid-template-columns: minmax(0, 1fr); }
.field.changed label { font-weight: 600; }
.field[hidden] { display: none; }
.field small { grid-column: 1 / -1; color: var(--soft); font-size: .8rem; }
input, select, textarea, button { font: inherit; color: inherit; background: var(--page); min-width: 0; width: 100%;
  border: 1px solid var(--none); border-radius: 6px; padding: .2rem .4rem; }
button { width: auto; cursor: pointer; padding: .2rem .45rem; font-size: .85rem; }
::placeholder { color: var(--soft); opacity: 1; }
textarea { font: 13px/1.4 ui-monospace, monospace; min-height: 14rem; resize: vertical; }
[aria-invalid=true] { border: 2px solid var(--bad); }
details { margin-top: .75rem; border-top: 1px solid var(--line); padding-top: .6rem; }
details details { border: 0; padding: 0; }
summary { cursor: pointer; font-weight: 600; }
details p { margin: .4rem 0; font-size: .9rem; }
.buttons { display: flex; flex-wrap: wrap; gap: .35rem; margin-top: .5rem; }
fieldset:first-child { border: 0; }
.status { color: var(--soft); margin: 0 0 .5rem; min-height: 1.5rem; }
.problem { border-left: 4px solid var(--bad); background: var(--card); margin: 0 0 1rem; padding: .5rem .75rem;
  overflow-wrap: anywhere; white-space: pre-wrap; }
.problem:empty { display: none; }
.stale section { border-style: dashed; }
@media (max-width: 60rem) {
  .columns { grid-template-columns: minmax(0, 1fr); }
  form { position: static; max-height: none; }
}
@media (min-width: 44rem) and (max-width: 60rem) {
  #fields, #settings { columns: 2; column-gap: 2rem; }
  fieldset { break-inside: avoid; }
}
";

const SCRIPT: &str = include_str!("page.js");

/// Draws the page. Its style and script have this nonce.
pub(super) fn page(nonce: &str) -> String {
    let option = |choice: &Choice| {
        let service = Service::from_toml(choice.text).expect("a valid example");
        html! { option value=(choice.name) { (service.name) } }
    };
    let first = Service::from_toml(SCENARIOS[0].text).expect("a valid example");
    let (defaults, _) = settings::split(&Yours::default());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "reqwest-steady: try a service" }
                link rel="icon" href="data:,";
                style nonce=(nonce) { (PreEscaped(STYLE)) (PreEscaped(FORM_STYLE)) }
            }
            body {
                a class="skip" href="#results" { "Skip to the results" }
                header {
                    h1 { "What retries do to your service" }
                    p {
                        "Pick a scenario or describe your service, and move your settings. The charts follow each change. This "
                        "server runs the real middlewares in virtual time in this process, listens on loopback only, and loads nothing "
                        "from elsewhere."
                    }
                }
                div class="columns" {
                    form id="form" autocomplete="off" {
                        div class="field long" {
                            label for="example" { "Start from" }
                            select id="example" aria-describedby="note" {
                                optgroup label="Scenarios of the lab" {
                                    @for choice in &SCENARIOS { (option(choice)) }
                                }
                                optgroup label="Usual services" {
                                    @for choice in &SERVICES { (option(choice)) }
                                }
                            }
                            small id="note" { (SCENARIOS[0].note()) }
                        }
                        details id="describe" {
                            summary { "Describe the service" }
                            div id="fields" { (Form::service().draw(&values(&first))) }
                            details id="service-text" {
                                summary { "The service as TOML" }
                                p { "For " code { "lab try --service service.toml" } ", or paste your own:" }
                                textarea id="toml" aria-label="The service as TOML" spellcheck="false" {}
                                div class="buttons" {
                                    button type="button" id="copy" { "Copy" }
                                    button type="button" id="use" { "Use this text" }
                                }
                            }
                        }
                        details id="yours" open {
                            summary { "Your settings" }
                            div class="buttons" {
                                button type="button" id="copy-toml" { "Copy as TOML" }
                                button type="button" id="copy-rust" { "Copy as Rust" }
                                button type="button" id="defaults" { "Defaults" }
                            }
                            div id="settings" { (Form::settings().draw(&defaults)) }
                            details id="settings-text" {
                                summary { "Your settings as TOML" }
                                p {
                                    "What differs from the defaults, for " code { "lab try --settings steady.toml" }
                                    " and " code { "SteadySettings::read" } ". Paste your own to set what has no field "
                                    "here:"
                                }
                                textarea id="settings-toml" aria-label="Your settings as TOML" spellcheck="false" {}
                                div class="buttons" {
                                    button type="button" id="use-settings" { "Use this text" }
                                }
                            }
                            details id="settings-code" {
                                summary { "Your settings as Rust" }
                                textarea id="settings-rust" aria-label="Your settings as Rust" readonly spellcheck="false" {}
                            }
                        }
                    }
                    main id="results" {
                        p class="status" id="status" role="status" {}
                        p class="problem" id="problem" role="alert" {}
                        div id="charts" {}
                        noscript { p { "The charts need JavaScript. " code { "lab try" } " does not." } }
                    }
                }
            }
            script nonce=(nonce) { (PreEscaped(SCRIPT)) }
        }
    };
    page.into_string()
}
