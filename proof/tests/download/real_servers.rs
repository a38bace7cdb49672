//! Real servers behind a proxy that cuts connections: nginx, which sends parts, and Python's, which does not.
//!
//! Without them, these tests print that they are skipped. With `STEADY_REQUIRE_NGINX` or `CI` set, they fail.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener as StdListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use reqwest_steady::download::DownloadError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::directory::Directory;
use crate::support::raw::{direct, in_time};
use crate::{bytes, client, quick};

const LENGTH: usize = 300_000;

/// Ends with the process when it is dropped.
struct RealServer {
    process: Child,
    port: u16,
    directory: Directory,
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RealServer {
    /// Starts a server for a folder with one file, or returns `None` if it is not installed.
    async fn start(command: impl Fn(&Directory, u16) -> Command) -> Option<Self> {
        let directory = Directory::new();
        fs::create_dir(directory.file("files")).unwrap();
        fs::write(directory.file("files/data.bin"), bytes(LENGTH)).unwrap();
        let port = {
            let listener = StdListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let mut command = command(&directory, port);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = command.get_program().to_string_lossy().into_owned();
                assert!(std::env::var_os("CI").is_none(), "{name} is not installed");
                let _ = writeln!(io::stderr(), "downloads: skipped, {name} is not installed");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let server = Self {
            process,
            port,
            directory,
        };
        in_time(async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        Some(server)
    }

    async fn nginx() -> Option<Self> {
        Self::nginx_with("").await
    }

    async fn nginx_with(directive: &str) -> Option<Self> {
        Self::start(|directory, port| {
            let config = format!(
                "daemon off; master_process off; pid pid; error_log stderr;\n\
                 events {{}}\n\
                 http {{ access_log off; {directive}\n\
                 server {{ listen 127.0.0.1:{port}; root files; }} }}\n"
            );
            fs::write(directory.file("nginx.conf"), config).unwrap();
            let mut command = Command::new("nginx");
            command
                .arg("-p")
                .arg(directory.path())
                .args(["-c", "nginx.conf"]);
            command
        })
        .await
    }

    async fn python() -> Option<Self> {
        Self::start(|directory, port| {
            let mut command = Command::new("python3");
            command.args([
                "-m",
                "http.server",
                "--bind",
                "127.0.0.1",
                &port.to_string(),
            ]);
            command.current_dir(directory.file("files"));
            command
        })
        .await
    }
}

/// Passes bytes on, and closes the first connections after some bytes of the response.
pub(crate) struct CuttingProxy {
    port: u16,
    connections: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl CuttingProxy {
    async fn start(to: u16, cuts: usize, after: u64) -> Self {
        Self::with_limits(to, vec![after; cuts]).await
    }

    /// Each of the first connections has its limit.
    pub(crate) async fn with_limits(to: u16, limits: Vec<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut tasks = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let limit = limits.get(count.fetch_add(1, Ordering::SeqCst)).copied();
                tasks.spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    let (mut from_client, mut to_client) = client.into_split();
                    let (from_server, mut to_server) = server.split();
                    let mut from_server = from_server.take(limit.unwrap_or(u64::MAX));
                    let up = copy(&mut from_client, &mut to_server);
                    let down = async {
                        let _ = copy(&mut from_server, &mut to_client).await;
                        let _ = to_client.shutdown().await;
                    };
                    tokio::select! {
                        _ = up => {}
                        () = down => {}
                    }
                });
            }
        });
        Self {
            port,
            connections,
            _accepting: accepting,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/data.bin", self.port)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn nginx_sends_the_rest_after_each_break() {
    let Some(nginx) = RealServer::nginx().await else {
        return;
    };
    for cuts in [0, 1, 7] {
        let proxy = CuttingProxy::start(nginx.port, cuts, 40_000).await;
        let mut download = in_time(quick(client(direct()).get(proxy.url())).into_future())
            .await
            .unwrap();
        assert_eq!(download.length(), Some(LENGTH as u64));
        let mut received = Vec::new();
        while let Some(chunk) = in_time(download.chunk()).await.unwrap() {
            received.extend_from_slice(&chunk);
        }
        assert!(received == bytes(LENGTH));
        assert_eq!(
            (proxy.connections(), download.resumes()),
            (cuts + 1, cuts as u32)
        );
    }
}

#[tokio::test]
async fn a_save_goes_on_by_range_with_nginx() {
    // The validator is the tag, or without it the date.
    for directive in ["", "etag off;"] {
        let Some(nginx) = RealServer::nginx_with(directive).await else {
            return;
        };
        let source = fs::File::open(nginx.directory.file("files/data.bin")).unwrap();
        let hour = Duration::from_secs(3600);
        source.set_modified(SystemTime::now() - hour).unwrap();
        let proxy = CuttingProxy::start(nginx.port, 7, 40_000).await;
        let target = nginx.directory.file("saved");
        let client = client(direct());
        // This save ends with the first break, and leaves a part file.
        let first = quick(client.get(proxy.url())).max_resumes(0);
        let first = in_time(first.into_future()).await.unwrap();
        assert_eq!(first.headers().contains_key("etag"), directive.is_empty());
        let error = in_time(first.save(&target)).await.unwrap_err();
        let received = DownloadError::of(&error).unwrap().received();
        assert!((39_000..40_000).contains(&received), "{received}");

        let progress = Arc::new(Mutex::new(vec![received]));
        let seen = progress.clone();
        let second = quick(client.get(proxy.url()));
        let second = second.on_progress(move |now| seen.lock().unwrap().push(now.received()));
        let second = in_time(second.into_future()).await.unwrap();
        assert_eq!(in_time(second.save(&target)).await.unwrap(), LENGTH as u64);
        assert!(fs::read(&target).unwrap() == bytes(LENGTH));
        // The second save reads only the headers of its first response. No byte came twice.
        assert_eq!(proxy.connections(), 8);
        assert!(progress.lock().unwrap().is_sorted());
    }
}

#[tokio::test]
async fn a_file_that_changes_on_nginx_is_saved_anew() {
    let Some(nginx) = RealServer::nginx().await else {
        return;
    };
    let proxy = CuttingProxy::start(nginx.port, 1, 40_000).await;
    let target = nginx.directory.file("saved");
    let download = in_time(quick(client(direct()).get(proxy.url())).into_future())
        .await
        .unwrap();
    fs::write(nginx.directory.file("files/data.bin"), vec![7; LENGTH + 1]).unwrap();
    in_time(download.save(&target)).await.unwrap();
    assert!(fs::read(&target).unwrap() == vec![7; LENGTH + 1]);
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test]
async fn a_server_without_ranges_is_asked_for_the_whole_file_again() {
    let Some(python) = RealServer::python().await else {
        return;
    };
    let proxy = CuttingProxy::start(python.port, 2, 40_000).await;
    let client = client(direct());
    let target = python.directory.file("saved");
    let download = in_time(quick(client.get(proxy.url())).into_future())
        .await
        .unwrap();
    in_time(download.save(&target)).await.unwrap();
    assert!(fs::read(&target).unwrap() == bytes(LENGTH));
    assert_eq!(proxy.connections(), 3);

    // A stream cannot begin again.
    let proxy = CuttingProxy::start(python.port, 1, 40_000).await;
    let mut download = in_time(quick(client.get(proxy.url())).into_future())
        .await
        .unwrap();
    let error = loop {
        match in_time(download.chunk()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the body was cut"),
            Err(error) => break error,
        }
    };
    assert!(DownloadError::of(&error).is_some(), "{error:?}");
}
