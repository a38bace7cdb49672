use proptest::prelude::*;

use super::*;

fn redact(secrets: &Secrets, url: &str) -> (String, Vec<String>) {
    let (url, places) = secrets.redact_url(&Url::parse(url).unwrap());
    let places = places.iter().map(Redacted::to_string).collect();
    (url.to_string(), places)
}

#[test]
fn a_url_loses_its_secrets_and_nothing_else() {
    for (url, left, places) in [
        ("http://a/b?c=d#e", "http://a/b?c=d", &[][..]),
        ("http://me:pw@a/b", "http://a/b", &["user info"]),
        ("http://:pw@a/", "http://a/", &["user info"]),
        ("http://me@a/", "http://a/", &["user info"]),
        (
            "http://a/?x=%41+b&token=s&y==&&z&=v&TOKEN=t",
            "http://a/?x=%41+b&token=REDACTED&y==&&z&=v&TOKEN=REDACTED",
            &["parameter token", "parameter TOKEN"],
        ),
        // Names are compared after decoding.
        (
            "http://a/?%74oken=s&api+key=t&user[password]=u",
            "http://a/?%74oken=REDACTED&api+key=REDACTED&user[password]=REDACTED",
            &[
                "parameter token",
                "parameter api key",
                "parameter user[password]",
            ],
        ),
        (
            "http://a/?sig=s&sig=t",
            "http://a/?sig=REDACTED&sig=REDACTED",
            &["parameter sig"],
        ),
        // An empty value is not redacted.
        ("http://a/?token&token=", "http://a/?token&token=", &[]),
        (
            "http://a/?a=1;sig=s;t&b=2;c&sig=x;y=z",
            "http://a/?a=1;sig=REDACTED&b=2;c&sig=REDACTED",
            &["parameter sig"],
        ),
        ("mailto:me@a", "mailto:me@a", &[]),
        // URLs in URLs.
        (
            "http://a/?next=https://h/?page=2&back=https%3A%2F%2Fme%3Apw%40h%2F&via=%2Fx%3Ftoken%3Ds",
            "http://a/?next=https://h/?page=2&back=REDACTED&via=REDACTED",
            &["parameter back", "parameter via"],
        ),
        (
            "http://a/?next=https://h/?sig=s",
            "http://a/?next=REDACTED",
            &["parameter next"],
        ),
    ] {
        let (text, found) = redact(&Secrets::default(), url);
        assert_eq!(text, left, "{url}");
        assert_eq!(found, places, "{url}");
    }
}

#[test]
fn the_list_can_be_extended_in_both_directions() {
    let secrets = Secrets::new()
        .parameter("Ticket")
        .header("X-Tenant")
        .keep("page_token");
    let (text, _) = redact(&secrets, "http://a/?ticket=s&page_token=7&token=t");
    assert_eq!(
        text,
        "http://a/?ticket=REDACTED&page_token=7&token=REDACTED"
    );
    let key_header = HeaderName::from_static("x-order-key");
    let is_secret = |name: &'static str, sensitive: bool| {
        let mut value = HeaderValue::from_static("v");
        value.set_sensitive(sensitive);
        secrets.is_secret_header(&HeaderName::from_static(name), &value, &key_header)
    };
    assert!(is_secret("x-tenant", false));
    assert!(!is_secret("ticket", false));
    assert!(!is_secret("page_token", false));
    assert!(is_secret("page_token", true), "marked as sensitive");
    assert!(is_secret("accept", true), "marked as sensitive");
    assert!(!is_secret("x-order-key", true), "the idempotency key");
    assert!(is_secret("x-other-key", false));
}

proptest! {
    #[test]
    fn whatever_is_no_secret_keeps_every_byte(query in "[ -~]{0,40}") {
        let url = Url::parse(&format!("http://a/?{}", query.replace('#', "%23"))).unwrap();
        let nothing = rewrite_query(url.query().unwrap(), |_, _| None);
        prop_assert_eq!(nothing, None);
        // A change keeps all other bytes.
        let mut marked = url.clone();
        marked.set_query(Some(&format!("{}&token=s", url.query().unwrap())));
        let secrets = Secrets::default();
        prop_assume!(secrets.redact_url(&url).1.is_empty());
        let (left, _) = secrets.redact_url(&marked);
        let whole = format!("{url}&token=REDACTED");
        prop_assert_eq!(left.as_str(), whole);
    }

    #[test]
    fn a_secret_value_is_never_left(value in "[!$-;=-Z_a-z~]{1,20}") {
        let secret = format!("7{}7", value.replace('&', ""));
        let url = Url::parse(&format!("http://a/?b=1&token={secret}&c=2")).unwrap();
        let (left, _) = Secrets::default().redact_url(&url);
        prop_assert_eq!(left.as_str(), "http://a/?b=1&token=REDACTED&c=2");
    }
}
