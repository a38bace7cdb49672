//! Hostile or careless servers. Whatever they send, the client never exceeds its own limits for
//! requests, waits and bytes read.

mod bodies;
mod hints;
mod load;
mod wire;
