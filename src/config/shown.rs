//! Settings as `Debug` shows them: by their names, one line each.

use std::fmt::{self, Debug, DebugStruct, Formatter};

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
