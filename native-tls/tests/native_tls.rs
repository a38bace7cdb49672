//! The TLS tests of the crate, with a reqwest that has only native-tls.

#[allow(dead_code)] // the crate's other tests use the rest
#[path = "../../tests/steady/support"]
mod support {
    pub(crate) mod raw;
    pub(crate) mod tls;
}

mod alpn;
#[path = "../../tests/steady/proxy.rs"]
mod proxy;
#[path = "../../tests/steady/tls.rs"]
mod tls;
