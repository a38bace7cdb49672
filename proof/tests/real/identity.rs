//! TLS servers, and handshakes that end early.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use reqwest::{Certificate, ClientBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection};
use tokio_rustls::server::TlsStream;

use crate::support::raw::{Wire, direct};

impl Wire for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// A private key and a self-signed certificate for a name.
pub(crate) struct Identity(CertifiedKey<rcgen::KeyPair>);

impl Identity {
    pub(crate) fn of(name: &str) -> Self {
        Self(generate_simple_self_signed([name.to_owned()]).unwrap())
    }

    /// Builds a server configuration that offers `protocols` through ALPN (RFC 7301).
    pub(crate) fn config(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::try_from(self.0.signing_key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.0.cert.der().clone()], key)
            .unwrap();
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = protocols.collect();
        Arc::new(config)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.config(&[]).into()
    }

    /// Builds a client that trusts only this certificate.
    pub(crate) fn trusted(&self) -> ClientBuilder {
        let certificate = Certificate::from_der(self.0.cert.der()).unwrap();
        direct().tls_certs_only([certificate])
    }
}

/// How a server ends a handshake early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Closes before it reads anything.
    OnAccept,
    /// Closes after the client's first message.
    AfterClientHello,
    /// Closes in the middle of the first record.
    WithinServerHello,
    /// Closes after the first record.
    AfterServerHello,
    /// Resets the connection after the client's first message.
    Reset,
    /// Sends a warning that the connection closes in order (RFC 8446 §6.1).
    CloseNotify,
    /// Sends a fatal alert: `handshake_failure` (RFC 8446 §6.2).
    HandshakeFailure,
    /// Sends a fatal alert: `internal_error`.
    InternalError,
    /// Responds in plain HTTP.
    PlainHttp,
}

impl Ending {
    pub(crate) async fn perform(self, mut tcp: TcpStream, config: Arc<ServerConfig>) {
        /// Type, version and length of a record (RFC 8446 §5.1).
        const ALERT: &[u8] = &[21, 3, 3, 0, 2];
        const WARNING: u8 = 1;
        const FATAL: u8 = 2;

        if self == Self::OnAccept {
            return close(tcp).await;
        }
        let flight = flight(&mut tcp, config).await;
        let first_record = 5 + usize::from(u16::from_be_bytes([flight[3], flight[4]]));
        let alert = |level, description| [ALERT, &[level, description]].concat();
        let bytes = match self {
            Self::OnAccept | Self::AfterClientHello => Vec::new(),
            Self::WithinServerHello => flight[..first_record / 2].to_vec(),
            Self::AfterServerHello => flight[..first_record].to_vec(),
            Self::Reset => return tcp.set_zero_linger().unwrap(),
            Self::CloseNotify => alert(WARNING, 0),
            Self::HandshakeFailure => alert(FATAL, 40),
            Self::InternalError => alert(FATAL, 80),
            Self::PlainHttp => b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_vec(),
        };
        // The client may have closed the connection.
        let _ = tcp.write_all(&bytes).await;
        close(tcp).await;
    }
}

/// Returns everything that a server writes after the client's first message.
async fn flight(tcp: &mut TcpStream, config: Arc<ServerConfig>) -> Vec<u8> {
    let mut connection = ServerConnection::new(config).unwrap();
    let mut flight = Vec::new();
    while !connection.wants_write() {
        let mut bytes = vec![0; 16 * 1024];
        let length = tcp.read(&mut bytes).await.unwrap();
        connection.read_tls(&mut &bytes[..length]).unwrap();
        connection.process_new_packets().unwrap();
    }
    while connection.wants_write() {
        connection.write_tls(&mut flight).unwrap();
    }
    flight
}

/// Closes without a reset. A close with unread data resets the connection, and the client could miss the last bytes.
async fn close(mut tcp: TcpStream) {
    let _ = tcp.shutdown().await;
    let _ = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
}
