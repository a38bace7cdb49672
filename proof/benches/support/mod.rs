//! What the benches share: what is compared, what is asked of it, and how it is counted.

#![allow(
    dead_code,
    reason = "shared by several benches, and none needs all of it"
)]

pub(crate) mod cases;
pub(crate) mod count;
pub(crate) mod memory;
pub(crate) mod stacks;
pub(crate) mod table;
