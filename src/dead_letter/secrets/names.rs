//! Recognises secrets by the names of headers and parameters. Each list is a text of words.

/// Words that make a name secret.
const WORDS: &str = "
    appid assertion authentication bearer cred creds csrf dpop otp passcode pin psk pswd pw sess
    session sid totp verifier wsse xsrf";

/// Parts of words that make a name secret.
const PARTS: &str = "
    apikey authorization cookie credential hmac jwt oauth passphrase passwd password secret sessid
    sessionid signature token";

/// Endings of words that make a name secret, except for the words in `HARMLESS_WORDS`.
const ENDINGS: &str = "auth key keys pass pwd sig";

/// Words with such an ending that are not secret.
const HARMLESS_WORDS: &str = "
    bypass cachekey compass donkey encompass foreignkey hockey hotkey jockey monkey overpass
    partitionkey primarykey publickey routingkey rowkey sortkey surpass surrogatekey trespass
    turkey underpass whiskey";

/// Whole names that are secret, although none of their words is. `code` is the authorization code of OAuth. Other
/// uses of it are common, but redacting too much is safer.
const NAMES: &str = "
    access-code authcode backup-code code device-code devicecode hdnea hdntl hdnts login-code
    mfa-code otpcode recovery-code samlart samlrequest samlresponse security-code signed-request
    user-code usercode verification-code x-amzn-oidc-data x-honeycomb-team x-ms-client-principal";

/// Parts of header names that carry a client certificate. Servers behind a proxy trust them, so they are credentials.
const CERTIFICATES: &str = "client-cert clientcert";

/// Whole names that are not secret, although one of their words is. They may start with `x-`.
const HARMLESS_NAMES: &str = "
    amz-server-side-encryption-aws-kms-key-id cache-key idempotency-key partition-key primary-key
    public-key routing-key sec-websocket-key sort-key surrogate-key";

/// Returns whether the name of a header or parameter stands for a secret.
pub(super) fn sounds_secret(name: &str) -> bool {
    let words = words(name);
    let joined = words.join("-");
    let harmless = joined.strip_prefix("x-").unwrap_or(&joined);
    if is_in(harmless, HARMLESS_NAMES) {
        return false;
    }
    is_in(&joined, NAMES)
        || words.iter().any(|word| is_secret(word))
        || CERTIFICATES.split_whitespace().any(|part| joined.contains(part))
        // `api-sign` is a signature, `sign-in` is not.
        || words.last().is_some_and(|last| last == "sign")
}

/// Words before `key` or `token` that make it the name of an operation.
const OPERATIONS: &str = "
    client deduplication idempotency operation order request retry transaction";

/// Returns whether the name stands for an operation, as in `X-Order-Key` or `X-Amz-Client-Token`.
pub(super) fn sounds_like_operation(name: &str) -> bool {
    match &words(name)[..] {
        [.., of, last] => is_in(of, OPERATIONS) && is_in(last, "key token"),
        _ => false,
    }
}

fn is_secret(word: &str) -> bool {
    // Strips the digit of `key1`.
    let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
    is_in(word, WORDS)
        || PARTS.split_whitespace().any(|part| word.contains(part))
        || (has_secret_ending(word) && !is_in(word, HARMLESS_WORDS))
}

fn has_secret_ending(word: &str) -> bool {
    let mut endings = ENDINGS.split_whitespace();
    endings.any(|ending| word.ends_with(ending))
}

fn is_in(name: &str, list: &str) -> bool {
    list.split_whitespace().any(|listed| listed == name)
}

/// Splits a name into words. `X-Api-Key`, `x_api_key` and `xApiKey` have the same three words.
fn words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut after_lower = false;
    for letter in name.chars() {
        let begins = after_lower && letter.is_uppercase();
        if (begins || !letter.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        after_lower = letter.is_lowercase() || letter.is_ascii_digit();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
