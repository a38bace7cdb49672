//! The scripts, and how they are called.

use redis::{Cmd, Script};

const STATE: &str = include_str!("state.lua");
const LEASE: &str = include_str!("lease.lua");
const PAUSE: &str = include_str!("pause.lua");
const RETRIES: &str = include_str!("retries.lua");

/// One for each decision.
pub(super) struct Scripts {
    pub(super) lease: Text,
    pub(super) pause: Text,
    pub(super) retries: Text,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            lease: Text::new(LEASE),
            pause: Text::new(PAUSE),
            retries: Text::new(RETRIES),
        }
    }
}

/// What a script says, and its hash.
pub(super) struct Text {
    text: String,
    hash: String,
}

impl Text {
    fn new(script: &str) -> Self {
        let text = format!("{STATE}\n{script}");
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// A script, with what it is for.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) script: &'a Text,
    pub(super) keys: &'a [String],
    pub(super) arguments: &'a [String],
}

impl Call<'_> {
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// Redis keeps it, and knows its hash from then on.
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
