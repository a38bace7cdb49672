//! A server that sends a made-up file in parts, and closes connections in the middle of bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What the server does with one request.
pub(crate) struct Plan {
    /// How many bytes of the body are sent.
    pub(crate) sent: u64,
    /// Resets the connection instead of closing it. What is on its way may be lost.
    pub(crate) resets: bool,
}

/// The file and how it is sent.
pub(crate) trait Script: Send + Sync + 'static {
    fn length(&self) -> u64;

    /// Fills a buffer with the bytes from `offset` on.
    fn fill(&self, offset: u64, buffer: &mut [u8]);

    /// `path` is that of the request, `first` the first byte that it asks for.
    fn plan(&self, path: &str, first: u64) -> Plan;
}

/// Ends with its connections when it is dropped.
pub(crate) struct RangeServer {
    port: u16,
    seen: Arc<Seen>,
    _accepting: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    requests: AtomicUsize,
    body_bytes: AtomicU64,
}

impl RangeServer {
    pub(crate) async fn start(script: impl Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (script, seen) = (Arc::new(script), Arc::new(Seen::default()));
        let shared = seen.clone();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (script, seen) = (script.clone(), shared.clone());
                connections.spawn(async move { serve(tcp, script.as_ref(), &seen).await });
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            port,
            seen,
            _accepting: accepting,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub(crate) fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    /// The bytes of all bodies that were written.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.seen.body_bytes.load(Ordering::SeqCst)
    }
}

/// Responds to one request.
async fn serve(mut tcp: TcpStream, script: &impl Script, seen: &Seen) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if tcp.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    seen.requests.fetch_add(1, Ordering::SeqCst);
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    let path = head.split(' ').nth(1)?.trim_start_matches('/').to_owned();
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(field, _)| *field == name);
        values.next().map(|(_, value)| value)
    };
    assert_eq!(header("accept-encoding"), Some("identity"));
    let length = script.length();
    let first = header("range").map(|range| {
        assert_eq!(header("if-range"), Some("\"tag\""));
        let first = range
            .strip_prefix("bytes=")
            .and_then(|it| it.strip_suffix('-'));
        first.unwrap().parse::<u64>().unwrap()
    });
    let start = first.unwrap_or_default();
    let (status, range) = match first {
        None => (200, String::new()),
        Some(first) => (
            206,
            format!("content-range: bytes {first}-{}/{length}\r\n", length - 1),
        ),
    };
    let rest = length - start;
    let plan = script.plan(&path, start);
    let head = format!(
        "HTTP/1.1 {status} Whatever\r\netag: \"tag\"\r\n{range}content-length: {rest}\r\nconnection: close\r\n\r\n"
    );
    tcp.write_all(head.as_bytes()).await.ok()?;
    let (mut offset, end) = (start, start + plan.sent.min(rest));
    let mut buffer = vec![0; 64 * 1024];
    while offset < end {
        let size = buffer.len().min((end - offset) as usize);
        script.fill(offset, &mut buffer[..size]);
        tcp.write_all(&buffer[..size]).await.ok()?;
        seen.body_bytes.fetch_add(size as u64, Ordering::SeqCst);
        offset += size as u64;
    }
    if plan.resets {
        tcp.set_zero_linger().ok()?;
    }
    Some(())
}
