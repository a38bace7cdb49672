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
    for kept in ["corpus", "findings"] {
        let Ok(inputs) = fs::read_dir(fuzz.join(kept).join(name)) else {
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
fn what_the_fuzzers_have_kept_still_holds() {
    let properties: &[(&str, Property)] = &[
        ("hints", hints),
        ("keys", keys),
        #[cfg(feature = "dead-letter-file")]
        ("letters", letters),
        ("limits", limits),
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
    fn any_headers_give_the_hint_that_they_say(data in bytes()) {
        hints(&data);
    }

    #[test]
    fn any_text_is_judged_as_a_key_and_sent_as_it_is(data in bytes()) {
        keys(&data);
    }

    #[test]
    fn any_rate_limit_means_what_its_draft_says_or_nothing(data in bytes()) {
        limits(&data);
    }

    #[test]
    fn any_calls_and_answers_go_as_the_model_says(data in bytes()) {
        sequences(&data);
    }
}

#[cfg(feature = "dead-letter-file")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_letters_come_back_from_a_sink(data in bytes()) {
        letters::letters_of_a_sink(&data);
    }

    #[test]
    fn any_file_gives_back_the_letters_in_it(data in bytes()) {
        letters(&data);
    }
}
