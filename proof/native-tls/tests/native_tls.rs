//! The TLS tests of the crate, with reqwest and native-tls only.

#[allow(dead_code)] // the crate's other tests use the rest
#[path = "../../../tests/steady/support"]
mod support {
    pub(crate) mod raw;
}

mod alpn;
#[path = "../../tests/real/identity.rs"]
mod identity;
#[path = "../../tests/real/proxy.rs"]
mod proxy;
#[path = "../../tests/real/tls.rs"]
mod tls;
