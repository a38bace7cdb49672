//! Properties that must hold for any input.
//!
//! The fuzzers in `fuzz/` call them with inputs that reach new code. The tests here call them with random inputs, and
//! replay the inputs that the fuzzers saved.
//!
//! Each property takes any bytes and turns them into what it needs. Where possible, it compares with a model: a second,
//! plain implementation of the rules, written from the documentation.

mod hints;
mod keys;
#[cfg(feature = "dead-letter-file")]
mod letters;
mod limits;
mod ranges;
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
pub use ranges::ranges;
pub use sequences::sequences;

/// Returns the URL of all requests. It is parsed once per thread, to save time.
fn address() -> Url {
    thread_local! {
        static ADDRESS: Url = Url::parse("https://api.example.com/orders").unwrap();
    }
    ADDRESS.with(Url::clone)
}

fn headers_of<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h HeaderValue> {
    headers.get_all(name).iter().collect()
}
