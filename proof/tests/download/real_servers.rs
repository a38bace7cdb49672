//! Real servers behind a proxy that cuts connections: nginx, which sends parts, and Python's, which does not.
//!
//! Without them, these tests print that they are skipped. With `STEADY_REQUIRE_NGINX` or `CI` set, they fail.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener as StdListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
        Self::start(|directory, port| {
            let config = format!(
                "daemon off; master_process off; pid pid; error_log stderr;\n\
                 events {{}}\n\
                 http {{ access_log off; server {{ listen 127.0.0.1:{port}; root files; }} }}\n"
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
struct CuttingProxy {
    port: u16,
    connections: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl CuttingProxy {
    async fn start(to: u16, cuts: usize, after: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut tasks = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let is_cut = count.fetch_add(1, Ordering::SeqCst) < cuts;
                tasks.spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    let (mut from_client, mut to_client) = client.into_split();
                    let (from_server, mut to_server) = server.split();
                    let limit = if is_cut { after } else { u64::MAX };
                    let mut from_server = from_server.take(limit);
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

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/data.bin", self.port)
    }

    fn connections(&self) -> usize {
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
