//! Code that the benches share: stacks, calls, and counting.

#![allow(dead_code, reason = "no bench needs all of it")]

pub(crate) mod cases;
pub(crate) mod count;
pub(crate) mod memory;
pub(crate) mod stacks;
pub(crate) mod table;
