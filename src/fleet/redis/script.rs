//! The Lua scripts, one per decision.

use std::sync::LazyLock;

use redis::{Cmd, Script};

pub(super) static LEASE: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("lease.lua")));
pub(super) static PAUSE: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("pause.lua")));
pub(super) static RETRIES: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("retries.lua")));

/// The text of a script and its SHA-1.
pub(super) struct LuaScript {
    text: String,
    hash: String,
}

impl LuaScript {
    fn new(script: &str) -> Self {
        let text = format!("{}\n{script}", include_str!("state.lua"));
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    pub(super) fn by_hash(&self, keys: &[String], arguments: &[String]) -> Cmd {
        command("EVALSHA", &self.hash, keys, arguments)
    }

    /// Redis stores the script, and knows its hash from then on.
    pub(super) fn by_text(&self, keys: &[String], arguments: &[String]) -> Cmd {
        command("EVAL", &self.text, keys, arguments)
    }
}

fn command(name: &str, script: &str, keys: &[String], arguments: &[String]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}
