//! A break at every byte of a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;

use crate::range_server::{Plan, RangeServer, Script};
use crate::support::raw::direct;
use crate::{bytes, client, quick};

const LENGTH: u64 = 64 * 1024;
const AT_ONCE: u64 = 32;

/// The path says how many bytes the first response has.
struct CutAt(Vec<u8>);

impl Script for CutAt {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) {
        let start = offset as usize;
        buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
    }

    fn plan(&self, path: &str, first: u64) -> Plan {
        let cut: u64 = path.trim_start_matches("reset/").parse().unwrap();
        Plan {
            sent: if first == 0 { cut } else { LENGTH },
            resets: first == 0 && path.starts_with("reset/"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_at_every_byte_of_64_kib_is_mended() {
    let file = Arc::new(bytes(LENGTH as usize));
    let hash = hmac_sha256::Hash::hash(&file);
    let server = Arc::new(RangeServer::start(CutAt(file.to_vec())).await);
    let client = client(direct());
    let next = Arc::new(AtomicU64::new(1));
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (client, server, next) = (client.clone(), server.clone(), next.clone());
        tasks.spawn(async move {
            let mut resumes = 0;
            loop {
                let cut = next.fetch_add(1, Ordering::SeqCst);
                if cut >= LENGTH {
                    return resumes;
                }
                let request = client.get(server.url(&cut.to_string()));
                let mut download = quick(request).await.unwrap();
                let mut sum = hmac_sha256::Hash::new();
                let mut received = 0;
                while let Some(chunk) = download.chunk().await.unwrap() {
                    sum.update(&chunk);
                    received += chunk.len() as u64;
                }
                assert_eq!((received, sum.finalize()), (LENGTH, hash), "cut at {cut}");
                assert_eq!(download.resumes(), 1, "cut at {cut}");
                resumes += u64::from(download.resumes());
            }
        });
    }
    let resumes: u64 = tasks.join_all().await.into_iter().sum();
    assert_eq!(resumes, LENGTH - 1);
    assert_eq!(server.requests() as u64, 2 * (LENGTH - 1));
}

#[tokio::test]
async fn breaks_before_the_first_byte_and_at_chunk_boundaries_are_mended() {
    let file = bytes(LENGTH as usize);
    let server = RangeServer::start(CutAt(file.clone())).await;
    let client = client(direct());
    let boundaries =
        [1024, 4096, 8192, 16 * 1024, 32 * 1024].map(|size| [size - 1, size, size + 1]);
    let edges = [LENGTH - 2, LENGTH - 1].into_iter();
    for cut in boundaries.into_iter().flatten().chain(edges) {
        let path = std::env::temp_dir().join(format!("steady-cut-{}-{cut}", std::process::id()));
        let request = client.get(server.url(&cut.to_string()));
        quick(request).await.unwrap().save(&path).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), file, "cut at {cut}");
        std::fs::remove_file(&path).unwrap();
    }
    // With nothing received, the file is asked for again without a range, and the path cuts it again.
    let request = quick(client.get(server.url("0"))).max_resumes(2);
    let error = request.await.unwrap().chunk().await.unwrap_err();
    assert!(error.to_string().contains("no resumes are left"), "{error}");
}

#[tokio::test]
async fn resets_are_mended_although_they_overtake_bytes() {
    let file = bytes(LENGTH as usize);
    let server = RangeServer::start(CutAt(file.clone())).await;
    let client = client(direct());
    for cut in (1000..LENGTH).step_by(1000) {
        let request = client.get(server.url(&format!("reset/{cut}")));
        // A reset may come before the first byte, again and again.
        let mut download = quick(request).max_resumes(50).await.unwrap();
        let mut received = Vec::new();
        while let Some(chunk) = download.chunk().await.unwrap() {
            received.extend_from_slice(&chunk);
        }
        assert!(received == file && download.resumes() > 0, "cut at {cut}");
    }
}
