//! A gigabyte with fifty breaks: the right bytes, hardly more on the wire, and flat memory.

use std::fs;
use std::io::{self, Read, Write};

use crate::range_server::{Plan, RangeServer, Script};
use crate::support::directory::Directory;
use crate::support::raw::direct;
use crate::{client, quick};

const LENGTH: u64 = 1 << 30;
const BREAKS: u64 = 50;
/// The process may grow by this much: buffers of sockets and files, whatever the length of the file.
const MAX_GROWTH_KIB: u64 = 48 * 1024;

/// Each block of 4 KiB begins with its number, so that no two places look alike.
struct Numbered;

impl Script for Numbered {
    fn length(&self) -> u64 {
        LENGTH
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) {
        for (at, byte) in (offset..).zip(buffer) {
            let (block, place) = (at / 4096, (at % 4096) as usize);
            *byte = match place {
                0..8 => block.to_be_bytes()[place],
                _ => (place % 251) as u8,
            };
        }
    }

    fn plan(&self, _: &str, first: u64) -> Plan {
        // Uneven parts, so that breaks fall anywhere.
        let part = LENGTH / (BREAKS + 1);
        let end = (first / part + 1) * part + 1 + first % 1000;
        Plan {
            sent: end - first,
            resets: false,
        }
    }
}

/// Returns the most memory that this process ever used.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let digits = line.unwrap().split_whitespace().nth(1).unwrap();
    digits.parse().unwrap()
}

fn hash(mut read: impl FnMut(&mut [u8]) -> usize) -> [u8; 32] {
    let mut sum = hmac_sha256::Hash::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match read(&mut buffer) {
            0 => return sum.finalize(),
            size => sum.update(&buffer[..size]),
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gigabyte_with_fifty_breaks_is_saved_whole_in_flat_memory() {
    let directory = Directory::new();
    let server = RangeServer::start(Numbered).await;
    let client = client(direct());
    let before = peak_kib();
    let download = quick(client.get(server.url("file"))).await.unwrap();
    let saved = download.save(directory.file("file")).await.unwrap();
    let growth = peak_kib() - before;
    assert_eq!(saved, LENGTH);
    let breaks = server.requests() as u64 - 1;
    let ratio = server.body_bytes() as f64 / LENGTH as f64;
    let _ = writeln!(
        io::stderr(),
        "1 GiB, {breaks} breaks: {ratio:.4} of the length on the wire, memory grew by {growth} KiB"
    );
    assert!(breaks >= BREAKS, "{breaks}");
    assert!(ratio <= 1.01, "{ratio}");
    assert!(growth <= MAX_GROWTH_KIB, "{growth} KiB");

    let mut file = fs::File::open(directory.file("file")).unwrap();
    let found = hash(|buffer| file.read(buffer).unwrap());
    let mut offset = 0;
    let expected = hash(|buffer| {
        let size = buffer.len().min((LENGTH - offset) as usize);
        Numbered.fill(offset, &mut buffer[..size]);
        offset += size as u64;
        size
    });
    assert_eq!(found, expected);
}
