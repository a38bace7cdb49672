//! A server of hyper, which speaks HTTP/1.1 or HTTP/2 without TLS.

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http::{Request, Response, Version};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Closes all its connections when dropped.
pub(crate) struct HyperServer {
    pub(crate) url: String,
    _accepting: JoinSet<()>,
}

impl HyperServer {
    pub(crate) async fn start<F, B>(
        version: Version,
        respond: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/orders", listener.local_addr().unwrap());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let respond = respond.clone();
                let service = service_fn(move |request| {
                    let response = respond(request);
                    async { Ok::<_, Infallible>(response.await) }
                });
                let io = TokioIo::new(tcp);
                connections.spawn(async move {
                    // A body that breaks off is an error here.
                    let _ = if version == Version::HTTP_2 {
                        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        http.serve_connection(io, service).await
                    } else {
                        let http = hyper::server::conn::http1::Builder::new();
                        http.serve_connection(io, service).await
                    };
                });
            }
        });
        Self {
            url,
            _accepting: accepting,
        }
    }
}
