//! Random inputs, and the inputs that the fuzzers saved.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Property = fn(&[u8]);

/// Replays the inputs of a fuzzer: those that reached new code (`corpus`) and those that failed (`findings`).
///
/// Returns the number of inputs, or `None` in a published package, which contains none.
fn replay(name: &str, property: Property) -> Option<usize> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    if !fuzz.exists() {
        return None;
    }
    let mut count = 0;
    for folder in ["corpus", "findings"] {
        let Ok(inputs) = fs::read_dir(fuzz.join(folder).join(name)) else {
            continue;
        };
        for input in inputs {
            let path = input.unwrap().path();
            // The test harness shows this if the next line panics.
            println!("{}", path.display());
            property(&fs::read(&path).unwrap());
            count += 1;
        }
    }
    Some(count)
}

#[test]
fn inputs_that_the_fuzzers_saved_still_pass() {
    let properties: &[(&str, Property)] = &[
        ("hints", hints),
        ("keys", keys),
        #[cfg(feature = "dead-letter-file")]
        ("letters", letters),
        ("limits", limits),
        ("ranges", ranges),
        ("sequences", sequences),
    ];
    for (name, property) in properties {
        let count = replay(name, *property);
        assert!(count.is_none_or(|count| count > 50), "{name}: {count:?}");
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_headers_give_the_documented_hint(data in bytes()) {
        hints(&data);
    }

    #[test]
    fn any_valid_key_is_sent_unchanged(data in bytes()) {
        keys(&data);
    }

    #[test]
    fn any_rate_limit_is_read_as_its_draft_defines_or_ignored(data in bytes()) {
        limits(&data);
    }

    #[test]
    fn any_response_to_a_range_request_fits_or_is_refused(data in bytes()) {
        ranges(&data);
    }

    #[test]
    fn any_calls_and_responses_match_the_model(data in bytes()) {
        sequences(&data);
    }
}

#[cfg(feature = "dead-letter-file")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_letters_can_be_read_back_from_a_sink(data in bytes()) {
        letters::letters_of_a_sink(&data);
    }

    #[test]
    fn any_file_returns_the_letters_in_it(data in bytes()) {
        letters(&data);
    }
}
