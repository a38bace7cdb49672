//! Opens a client for an address of Redis, and shows the address without its password.

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use reqwest::Url;

use crate::config::ConfigError;

const SCHEMES: [&str; 5] = ["redis", "rediss", "valkey", "valkeys", "redis+unix"];

const FORM: &str = "should be like redis://user:password@host:6379/0";
const NEEDS_TLS: &str = "needs TLS, which the crate `redis` is built without: \
     depend on it with a feature like `tokio-rustls-comp`";

pub(super) fn of_url(url: &str) -> Result<Client, ConfigError> {
    let refused = |rule: &str| ConfigError::new("url", shown(url), rule);
    let parsed = redis::parse_redis_url(url).ok_or_else(|| refused(FORM))?;
    if is_misread(&parsed) {
        // The host would be a part of the password.
        return Err(refused(
            "should have `/`, `?`, `#` and `@` in its password percent-encoded",
        ));
    }
    // The crate `redis` refuses it too, but gives no advice.
    let needs_tls = ["rediss", "valkeys"].contains(&parsed.scheme()) && !has_tls();
    let rule = if needs_tls { NEEDS_TLS } else { FORM };
    let info = parsed.into_connection_info().map_err(|_| refused(rule))?;
    open(info, shown(url))
}

pub(super) fn of_client(client: &Client) -> Result<Client, ConfigError> {
    let info = client.get_connection_info().clone();
    let shown = info.addr().to_string();
    open(info, shown)
}

fn open(info: ConnectionInfo, shown: String) -> Result<Client, ConfigError> {
    if !info.addr().is_supported() {
        let rule = "leads to what the crate `redis` is built without";
        return Err(ConfigError::new("url", shown, rule));
    }
    // Requests are small. Without `nodelay`, one that waits for the response to another may be too late.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp))
        .map_err(|_| ConfigError::new("url", "hidden", "is not what the crate `redis` can use"))
}

/// Whether the crate `redis` is built with TLS.
fn has_tls() -> bool {
    let encrypted = ConnectionAddr::TcpTls {
        host: String::new(),
        port: 0,
        insecure: false,
        tls_params: None,
    };
    encrypted.is_supported()
}

/// Shows scheme and host. Hides all of it where a part of the password may look like something else: with a
/// `/` in the password, or without a scheme.
fn shown(url: &str) -> String {
    let hidden = || "hidden, because it may hold a password".to_owned();
    let Ok(parsed) = Url::parse(url) else {
        return hidden();
    };
    match parsed.host_str() {
        Some(host) if SCHEMES.contains(&parsed.scheme()) && !is_misread(&parsed) => {
            format!("{}://{host}", parsed.scheme())
        }
        _ => hidden(),
    }
}

/// Whether a part of the login seems to follow the host.
fn is_misread(url: &Url) -> bool {
    let rest = [Some(url.path()), url.query(), url.fragment()];
    let mut rest = rest.iter().flatten();
    // The path of a socket may hold an `@`.
    let has_host = url.host_str().is_some_and(|host| !host.is_empty());
    has_host && rest.any(|part| part.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_url_is_shown_without_its_password() {
        for (url, named) in [
            ("redis://user:secret@host/none", "url (redis://host)"),
            ("rediss://:secret@host", "url (rediss://host) needs TLS"),
            ("http://user:secret@host", "url (hidden,"),
            ("user:secret@host", "url (hidden,"),
            ("redis://user:12/secret@host", "url (hidden,"),
            ("redis://user:1/#secret@host", "url (hidden,"),
            ("redis:secret@host", "url (hidden,"),
            ("redis://user:secret@host:port", "url (hidden,"),
            ("", "url (hidden,"),
        ] {
            let error = of_url(url).unwrap_err().to_string();
            assert!(error.starts_with(named), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn usual_urls_are_accepted() {
        for url in [
            "redis://127.0.0.1",
            "redis://user:secret@host:6380/3",
            "redis://[::1]:6379",
            "redis://host/?protocol=resp3",
            #[cfg(unix)]
            "redis+unix:///run/redis@one.sock",
        ] {
            assert!(of_url(url).is_ok(), "{url}");
        }
    }
}
