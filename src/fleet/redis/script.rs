//! The Lua scripts, and how to call them.

use redis::{Cmd, Script};

const STATE: &str = include_str!("state.lua");
const LEASE: &str = include_str!("lease.lua");
const PAUSE: &str = include_str!("pause.lua");
const RETRIES: &str = include_str!("retries.lua");

/// One script per decision.
pub(super) struct Scripts {
    pub(super) lease: ScriptText,
    pub(super) pause: ScriptText,
    pub(super) retries: ScriptText,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            lease: ScriptText::new(LEASE),
            pause: ScriptText::new(PAUSE),
            retries: ScriptText::new(RETRIES),
        }
    }
}

/// The text of a script and its SHA-1.
pub(super) struct ScriptText {
    text: String,
    hash: String,
}

impl ScriptText {
    fn new(script: &str) -> Self {
        let text = format!("{STATE}\n{script}");
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    pub(super) fn call<'a>(
        &'a self,
        keys: &'a [String],
        arguments: &'a [String],
    ) -> ScriptCall<'a> {
        ScriptCall {
            script: self,
            keys,
            arguments,
        }
    }
}

/// A script with its keys and arguments.
#[derive(Clone, Copy)]
pub(super) struct ScriptCall<'a> {
    script: &'a ScriptText,
    keys: &'a [String],
    arguments: &'a [String],
}

impl ScriptCall<'_> {
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// Redis stores the script, and knows its hash from then on.
    pub(super) fn by_text(&self) -> Cmd {
        self.command("EVAL", &self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        command.arg(self.keys).arg(self.arguments);
        command
    }
}
