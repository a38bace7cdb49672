//! Names under which a store keeps what belongs to a gate or a budget.

use crate::config::{ConfigError, ensure};

/// A store refuses longer keys, because it keeps each of them.
const MAX_KEY: usize = 1024;
/// Longer texts are hashed, whether they are private or not.
const MAX_TEXT: usize = 256;

/// Makes the name of a key in the store. The kind keeps a gate and a retry budget of one host apart. Private and
/// long texts are replaced by a hash.
pub(crate) fn store_key(kind: &str, text: &str, is_private: bool) -> String {
    if !is_private && text.len() <= MAX_TEXT {
        return format!("{kind}:{text}");
    }
    let hash = hmac_sha256::Hash::hash(text.as_bytes());
    let hex: String = (hash[..16].iter().map(|byte| format!("{byte:02x}"))).collect();
    // No host begins with `#`.
    format!("{kind}:#{hex}")
}

/// Checks the length of a key. The error shows only the length, because a key may be a secret.
pub(super) fn check_key(key: &str) -> Result<(), ConfigError> {
    let length = key.len();
    ensure(
        (1..=MAX_KEY).contains(&length),
        "key",
        format_args!("of {length} bytes"),
        format_args!("should have from 1 to {MAX_KEY}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_long_texts_do_not_reach_the_store() {
        let host = store_key("gate", "api.example.com:8443/v1", false);
        assert_eq!(host, "gate:api.example.com:8443/v1");
        let private = store_key("gate", "sk_live_51", true);
        assert_eq!(private.len(), "gate:#".len() + 32);
        assert!(!private.contains("sk_live"));
        assert_eq!(private, store_key("gate", "sk_live_51", true));
        assert_ne!(private, store_key("gate", "sk_live_52", true));
        assert_ne!(private, store_key("retry", "sk_live_51", true));
        let long = store_key("retry", &"x".repeat(10_000), false);
        assert_eq!(long.len(), "retry:#".len() + 32);
        // The first sixteen bytes of SHA-256.
        let abc = store_key("gate", "abc", true);
        assert_eq!(abc, "gate:#ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn a_key_of_invalid_length_is_refused_without_showing_it() {
        for (key, text) in [
            (String::new(), "key (of 0 bytes)"),
            ("k".repeat(2000), "key (of 2000 bytes)"),
        ] {
            let refusal = check_key(&key).unwrap_err().to_string();
            assert!(refusal.starts_with(text), "{refusal}");
        }
    }
}
