//! The resources of this process: bytes, descriptors, tasks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

/// The system's allocator, which counts the bytes in use.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded unchanged, and the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
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

/// Longer than a pool keeps an idle connection.
const SETTLING: Duration = Duration::from_millis(120);

/// The resources at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Allocated and not freed.
    pub(crate) bytes: usize,
    /// Resident memory, including what the allocator caches.
    pub(crate) resident_kib: usize,
    pub(crate) descriptors: usize,
    /// The tasks of the runtime, except the current one.
    pub(crate) tasks: usize,
}

impl Held {
    pub(crate) fn now() -> Self {
        Self {
            bytes: IN_USE.load(Ordering::Relaxed),
            resident_kib: resident_kib(),
            // One descriptor is open to read the directory.
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count() - 1,
            tasks: Handle::current().metrics().num_alive_tasks(),
        }
    }

    /// Waits until closed connections are gone and nothing changes any more.
    ///
    /// The wait is limited, so that a leak fails the test instead of hanging it.
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
