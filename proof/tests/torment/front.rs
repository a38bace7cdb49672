//! A load balancer that terminates TLS, and a forward proxy that opens tunnels to it.
//!
//! Both forward bytes and have their own faults. After such a fault, no request reaches the server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::generate_simple_self_signed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::faults::{Fault, Odds};
use crate::server::ServerState;

/// The faults per connection to the load balancer.
pub(crate) const TLS: Odds = &[
    (Fault::EndOnAccept, 30),
    (Fault::EndAfterClientHello, 30),
    (Fault::EndWithinServerHello, 30),
    (Fault::CloseNotify, 30),
];

/// The faults per tunnel.
pub(crate) const CONNECT: Odds = &[
    (Fault::TunnelLimited, 20),
    (Fault::TunnelBadGateway, 20),
    (Fault::TunnelUnavailable, 20),
    (Fault::TunnelTimeout, 20),
    (Fault::TunnelClosed, 20),
];

/// The addresses of the server, by the protocol of the client.
#[derive(Clone, Copy)]
pub(crate) struct Behind {
    pub(crate) http1: SocketAddr,
    pub(crate) http2: SocketAddr,
}

/// Creates a key and a certificate that the clients trust.
pub(crate) fn acceptor() -> TlsAcceptor {
    let identity = generate_simple_self_signed(["payments.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(identity.signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Clients cache session tickets, which would look like a leak.
    config.send_tls13_tickets = 0;
    Arc::new(config).into()
}

/// Fails the handshake, or forwards the data after it.
pub(crate) async fn balance(
    mut tcp: TcpStream,
    acceptor: TlsAcceptor,
    behind: Behind,
    state: Arc<ServerState>,
) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let last_words: &[u8] = match state.dice.draw(TLS) {
        Fault::EndOnAccept => return close(tcp).await,
        Fault::EndAfterClientHello => &[],
        // The first bytes of a record of 122 bytes (RFC 8446 §5.1).
        Fault::EndWithinServerHello => &[22, 3, 3, 0, 122, 2, 0, 0, 118, 3, 3],
        // An alert: its level and its number (RFC 8446 §6.1).
        Fault::CloseNotify => &[21, 3, 3, 0, 2, 1, 0],
        _ => {
            let mut tls = acceptor.accept(tcp).await?;
            let (_, session) = tls.get_ref();
            let server = match session.alpn_protocol() {
                Some(b"h2") => behind.http2,
                _ => behind.http1,
            };
            let mut server = connect(server).await?;
            if tokio::io::copy_bidirectional(&mut tls, &mut server)
                .await
                .is_err()
            {
                let (tcp, _) = tls.get_ref();
                tcp.set_zero_linger()?;
            }
            return Ok(());
        }
    };
    // The first message usually fits into one read. `close` reads the rest.
    let _ = tcp.read(&mut [0; 4096]).await?;
    tcp.write_all(last_words).await?;
    close(tcp).await
}

/// Opens a tunnel to the load balancer, or responds with an error.
pub(crate) async fn tunnel(
    mut tcp: TcpStream,
    balancer: SocketAddr,
    state: Arc<ServerState>,
) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await?);
    }
    let refusal = match state.dice.draw(CONNECT) {
        Fault::TunnelLimited => "429 Too Many",
        Fault::TunnelBadGateway => "502 Bad Gateway",
        Fault::TunnelUnavailable => "503 Unavailable",
        Fault::TunnelTimeout => "504 Timeout",
        Fault::TunnelClosed => return close(tcp).await,
        _ => {
            let mut balancer = connect(balancer).await?;
            tcp.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
            let passed = tokio::io::copy_bidirectional(&mut tcp, &mut balancer).await;
            if passed.is_err() {
                tcp.set_zero_linger()?;
            }
            return Ok(());
        }
    };
    let refusal = format!("HTTP/1.1 {refusal}\r\ncontent-length: 0\r\n\r\n");
    tcp.write_all(refusal.as_bytes()).await?;
    close(tcp).await
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Closes without a reset. A close with unread data resets the connection.
async fn close(mut tcp: TcpStream) -> io::Result<()> {
    tcp.shutdown().await?;
    tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await?;
    Ok(())
}

/// Serves both until one fails.
pub(crate) async fn accept(
    balancer: TcpListener,
    proxy: TcpListener,
    behind: Behind,
    state: &Arc<ServerState>,
) -> io::Result<()> {
    let acceptor = acceptor();
    let address = balancer.local_addr()?;
    loop {
        tokio::select! {
            accepted = balancer.accept() => {
                tokio::spawn(balance(accepted?.0, acceptor.clone(), behind, state.clone()));
            }
            accepted = proxy.accept() => {
                tokio::spawn(tunnel(accepted?.0, address, state.clone()));
            }
        }
    }
}
