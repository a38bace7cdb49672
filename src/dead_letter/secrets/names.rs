//! Recognises secrets by the names of headers and parameters.

/// Words that make a name secret.
const WORDS: &[&str] = &[
    "appid",
    "assertion",
    "authentication",
    "bearer",
    "cred",
    "creds",
    "csrf",
    "dpop",
    "otp",
    "passcode",
    "pin",
    "psk",
    "pswd",
    "pw",
    "sess",
    "session",
    "sid",
    "totp",
    "verifier",
    "wsse",
    "xsrf",
];

/// Parts of words that make a name secret.
const PARTS: &[&str] = &[
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "hmac",
    "jwt",
    "oauth",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "sessid",
    "sessionid",
    "signature",
    "token",
];

/// Endings of words that make a name secret, except for the words in `HARMLESS_WORDS`.
const ENDINGS: &[&str] = &["auth", "key", "keys", "pass", "pwd", "sig"];

/// Words with such an ending that are not secret.
const HARMLESS_WORDS: &[&str] = &[
    "bypass",
    "cachekey",
    "compass",
    "donkey",
    "encompass",
    "foreignkey",
    "hockey",
    "hotkey",
    "jockey",
    "monkey",
    "overpass",
    "partitionkey",
    "primarykey",
    "publickey",
    "routingkey",
    "rowkey",
    "sortkey",
    "surpass",
    "surrogatekey",
    "trespass",
    "turkey",
    "underpass",
    "whiskey",
];

/// Whole names that are secret, although none of their words is.
const NAMES: &[&str] = &[
    "access-code",
    "authcode",
    "backup-code",
    // The authorization code of OAuth. Other uses are common, but redacting too much is safer.
    "code",
    "device-code",
    "devicecode",
    "hdnea",
    "hdntl",
    "hdnts",
    "login-code",
    "mfa-code",
    "otpcode",
    "recovery-code",
    "samlart",
    "samlrequest",
    "samlresponse",
    "security-code",
    "signed-request",
    "user-code",
    "usercode",
    "verification-code",
    "x-amzn-oidc-data",
    "x-honeycomb-team",
    "x-ms-client-principal",
];

/// Parts of header names that carry a client certificate. Servers behind a proxy trust them, so they are credentials.
const CERTIFICATES: &[&str] = &["client-cert", "clientcert"];

/// Whole names that are not secret, although one of their words is. They may start with `x-`.
const HARMLESS_NAMES: &[&str] = &[
    "amz-server-side-encryption-aws-kms-key-id",
    "cache-key",
    "idempotency-key",
    "partition-key",
    "primary-key",
    "public-key",
    "routing-key",
    "sec-websocket-key",
    "sort-key",
    "surrogate-key",
];

/// Returns whether the name of a header or parameter stands for a secret.
pub(super) fn sounds_secret(name: &str) -> bool {
    let words = words(name);
    let joined = words.join("-");
    let harmless = joined.strip_prefix("x-").unwrap_or(&joined);
    if HARMLESS_NAMES.contains(&harmless) {
        return false;
    }
    NAMES.contains(&joined.as_str())
        || words.iter().any(|word| is_secret(word))
        || CERTIFICATES.iter().any(|part| joined.contains(part))
        // `api-sign` is a signature, `sign-in` is not.
        || words.last().is_some_and(|last| last == "sign")
}

/// Words before `key` or `token` that make it the name of an operation.
const OPERATIONS: &[&str] = &[
    "client",
    "deduplication",
    "idempotency",
    "operation",
    "order",
    "request",
    "retry",
    "transaction",
];

/// Returns whether the name stands for an operation, as in `X-Order-Key` or `X-Amz-Client-Token`.
pub(super) fn sounds_like_operation(name: &str) -> bool {
    match &words(name)[..] {
        [.., of, last] => {
            OPERATIONS.contains(&of.as_str()) && ["key", "token"].contains(&last.as_str())
        }
        _ => false,
    }
}

fn is_secret(word: &str) -> bool {
    // Strips the digit of `key1`.
    let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
    WORDS.contains(&word)
        || PARTS.iter().any(|part| word.contains(part))
        || (ENDINGS.iter().any(|ending| word.ends_with(ending)) && !HARMLESS_WORDS.contains(&word))
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
mod tests {
    use super::*;

    #[test]
    fn names_of_real_secrets_say_so() {
        for name in [
            "passkey",
            "x-oauth",
            "appid",
            "userpass",
            "userPwd",
            "dbpass",
            "psk",
            "creds",
            "privkey",
            "streamkey",
            "SharedAccessKey",
            "apisig",
            "x-wsse",
            "dpop",
            "signed_request",
            "authcode",
            "otpcode",
            "jwtassertion",
            "basicauth",
            "sessioncookie",
            "security_code",
            "Authorization",
            "Proxy-Authorization",
            "Cookie",
            "Set-Cookie",
            "Cookie2",
            "X-Api-Key",
            "api_key",
            "apikey",
            "APIKey",
            "ApiKey",
            "X-MBX-APIKEY",
            "X-Auth-Token",
            "X-Auth-Key",
            "X-Amz-Security-Token",
            "X-Amz-Signature",
            "X-Amz-Credential",
            "X-Amz-Server-Side-Encryption-Customer-Key",
            "X-Goog-Signature",
            "x-goog-api-key",
            "x-goog-iap-jwt-assertion",
            "X-Amzn-Oidc-Data",
            "X-Amzn-Oidc-Accesstoken",
            "Cf-Access-Jwt-Assertion",
            "cf-access-client-secret",
            "Private-Token",
            "Job-Token",
            "X-Vault-Token",
            "X-Consul-Token",
            "X-Gitlab-Token",
            "X-Shopify-Access-Token",
            "X-Shopify-Hmac-Sha256",
            "Ocp-Apim-Subscription-Key",
            "x-functions-key",
            "DD-API-KEY",
            "DD-APPLICATION-KEY",
            "X-Honeycomb-Team",
            "X-Sentry-Auth",
            "X-Github-Otp",
            "X-CSRFToken",
            "X-XSRF-TOKEN",
            "Stripe-Signature",
            "X-Hub-Signature-256",
            "API-Sign",
            "OK-ACCESS-PASSPHRASE",
            "Mcp-Session-Id",
            "Fastly-Key",
            "key",
            "key1",
            "sig",
            "sign",
            "signature",
            "token",
            "access_token",
            "accessToken",
            "id_token_hint",
            "refreshtoken",
            "client_secret",
            "clientSecret",
            "password",
            "passwd",
            "userPassword",
            "user[password]",
            "pwd",
            "pass",
            "passphrase",
            "credentials",
            "AWSAccessKeyId",
            "accesskey",
            "subscription-key",
            "subscriptionkey",
            "oauth_consumer_key",
            "oauth_signature",
            "code_verifier",
            "client_assertion",
            "jwt",
            "JSESSIONID",
            "PHPSESSID",
            "connect.sid",
            "otp",
            "pin",
            "SAMLResponse",
            "SAMLart",
            "hdnts",
            // Codes of OAuth, and codes that are sent to a user.
            "code",
            "device_code",
            "deviceCode",
            "user_code",
            "auth_code",
            "authorization_code",
            "verification_code",
            "mfa_code",
            "recovery_code",
            "refresh_token",
            "id_token",
            "assertion",
            // Certificates that a proxy checked.
            "X-Forwarded-Client-Cert",
            "Client-Cert",
            "Client-Cert-Chain",
            "X-SSL-Client-Cert",
            "X-Client-Certificate",
            "X-ARR-ClientCert",
            "X-Amzn-Mtls-Clientcert",
        ] {
            assert!(sounds_secret(name), "{name}");
        }
    }

    #[test]
    fn names_of_operations_say_so() {
        for name in [
            "Cko-Idempotency-Key",
            "opc-retry-token",
            "X-Amz-Client-Token",
            "x-client-token",
            "X-Order-Key",
            "x-request-key",
        ] {
            assert!(sounds_like_operation(name), "{name}");
        }
        for name in [
            "cf-access-client-secret",
            "client-cert",
            "key",
            "token",
            "x-access-token",
            "x-api-key",
            "x-client-api-key",
            "x-request-signature",
            "",
        ] {
            assert!(!sounds_like_operation(name), "{name}");
        }
    }

    #[test]
    fn names_of_other_things_do_not() {
        for name in [
            "Accept",
            "Content-Type",
            "Content-Length",
            "User-Agent",
            "Host",
            "If-None-Match",
            "Origin",
            "Referer",
            "Traceparent",
            "X-Request-Id",
            "X-Forwarded-For",
            "X-Amz-Date",
            "X-Amz-Algorithm",
            "X-Amz-Expires",
            "X-Amz-SignedHeaders",
            "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id",
            "Idempotency-Key",
            "X-Idempotency-Key",
            "idempotencyKey",
            "sec-websocket-key",
            "Surrogate-Key",
            "X-Ms-Documentdb-Partitionkey",
            "keyword",
            "keywords",
            "keyboard",
            "monkey",
            "turkey",
            "passenger",
            "passive",
            "bypass",
            "author",
            "authors",
            "authority",
            "X-Authenticated-User",
            "page",
            "cursor",
            "limit",
            "q",
            "country_code",
            "error_code",
            "status-code",
            "zipcode",
            "codes",
            "encoded",
            "code_challenge",
            "X-SSL-Client-Verify",
            "state",
            "nonce",
            "design",
            "sign_in",
            "signup",
            "sidebar",
            "inside",
            "pinned",
            "shipping",
            "possession",
            "sort_key",
            "publicKey",
            "expires",
            "id",
            "",
            "-",
        ] {
            assert!(!sounds_secret(name), "{name}");
        }
    }
}
