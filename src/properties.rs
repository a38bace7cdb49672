//! What must hold for any input, whoever makes it up: the fuzzers of `fuzz/`, which see what an input has
//! reached, and the tests here, which draw inputs by chance and replay those that the fuzzers have kept.
//!
//! Each property takes any bytes and makes of them what it needs. Where it can, it compares with a model:
//! the same rules once more, written from the documentation, and as plainly as they can be where speed
//! does not matter.

mod hints;
mod keys;
#[cfg(feature = "dead-letter-file")]
mod letters;
mod limits;
mod sequences;
#[cfg(test)]
mod tests;

use http::{HeaderMap, HeaderValue};
use reqwest::Url;

pub use hints::hints;
pub use keys::keys;
#[cfg(feature = "dead-letter-file")]
pub use letters::letters;
pub use limits::limits;
pub use sequences::sequences;

/// Parsed once for each thread: what is looked at comes after that.
fn address() -> Url {
    thread_local! {
        static ADDRESS: Url = Url::parse("https://api.example.com/orders").unwrap();
    }
    ADDRESS.with(Url::clone)
}

fn headers_of<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h HeaderValue> {
    headers.get_all(name).iter().collect()
}
