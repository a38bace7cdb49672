//! What this process holds: bytes, descriptors, tasks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// The system's allocator, which counts what is in use, to the byte.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on as it is, and the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: what the caller promises is what is asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        IN_USE.fetch_add(size, Ordering::Relaxed);
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Longer than a pool keeps a connection that is not used.
const SETTLING: Duration = Duration::from_millis(120);

/// What is held at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Allocated and not freed.
    pub(crate) bytes: usize,
    /// Resident memory, which also has what the allocator keeps for later.
    pub(crate) resident_kib: usize,
    pub(crate) descriptors: usize,
    /// Of the runtime, beside the one that asks.
    pub(crate) tasks: usize,
}

impl Held {
    pub(crate) fn now() -> Self {
        Self {
            bytes: IN_USE.load(Ordering::Relaxed),
            resident_kib: resident_kib(),
            // One of them reads the directory.
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count() - 1,
            tasks: Handle::current().metrics().num_alive_tasks(),
        }
    }

    /// What is held when connections that were ended from the other side are gone here as well, and
    /// nothing changes any more. There is an end to it, so that a leak ends the test and not the patience
    /// of its reader.
    pub(crate) async fn when_settled(start: Self) -> Self {
        let mut last = Self::now();
        for _ in 0..80 {
            tokio::time::sleep(SETTLING).await;
            let now = Self::now();
            let is_quiet = now.bytes == last.bytes;
            if is_quiet && now.descriptors <= start.descriptors && now.tasks <= start.tasks {
                return now;
            }
            last = now;
        }
        last
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>10} bytes in use, {:>6} KiB resident, {:>3} descriptors, {:>2} tasks",
            self.bytes, self.resident_kib, self.descriptors, self.tasks
        )
    }
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let mut words = line.unwrap().split_whitespace();
    words.nth(1).unwrap().parse().unwrap()
}
