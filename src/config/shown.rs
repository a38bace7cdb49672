//! Settings as `Debug` shows them: by their names, one line each. Also values as files have them.

use std::fmt::{self, Debug, DebugStruct, Display, Formatter};
use std::time::Duration;

use jiff::fmt::friendly::SpanPrinter;

/// Shows a value as files have it.
pub(crate) struct Written<T>(pub(crate) T);

/// `1m 30s`, and `0s` for zero.
impl Display for Written<Duration> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&SpanPrinter::new().unsigned_duration_to_string(&self.0))
    }
}

/// The same, for error messages.
impl Debug for Written<Duration> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// `10`, and `nan` as in TOML.
impl Display for Written<f64> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.is_nan() {
            true => f.write_str("nan"),
            false => Display::fmt(&self.0, f),
        }
    }
}

/// `10.0`, and `nan` as in TOML.
impl Debug for Written<f64> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.is_nan() {
            true => f.write_str("nan"),
            false => Debug::fmt(&self.0, f),
        }
    }
}

/// Shows a value that may be missing.
pub(crate) fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// Shows settings by the names of their builder methods.
///
/// Each takes one line, even in `{:#?}`, where nested values would take many. Settings that are off can be left out,
/// so that the others are seen.
pub(crate) struct ShownSettings<'a, 'b>(DebugStruct<'a, 'b>);

impl<'a, 'b> ShownSettings<'a, 'b> {
    pub(crate) fn new(f: &'a mut Formatter<'b>, type_name: &str) -> Self {
        Self(f.debug_struct(type_name))
    }

    /// Shows a setting.
    pub(crate) fn setting(&mut self, name: &str, value: impl Debug) -> &mut Self {
        self.0.field(name, &format_args!("{value:?}"));
        self
    }

    /// Shows a setting if it has a value.
    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Debug>) -> &mut Self {
        if let Some(value) = value {
            self.setting(name, value);
        }
        self
    }

    /// Shows a setting unless it has this default.
    pub(crate) fn unless<T: Debug + PartialEq>(
        &mut self,
        default: T,
        name: &str,
        value: T,
    ) -> &mut Self {
        if value != default {
            self.setting(name, value);
        }
        self
    }

    /// Ends with `..`, because settings may be left out.
    pub(crate) fn finish(&mut self) -> fmt::Result {
        self.0.finish_non_exhaustive()
    }
}
