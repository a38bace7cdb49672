//! Servers that mean no good, or were written by somebody who did not think of us: whatever they say, the
//! client asks no oftener, waits no longer and reads no more than its own limits allow.

mod bodies;
mod hints;
mod load;
mod wire;
