//! Instructions and allocations of calls: the same on every machine, however busy it is.
//!
//! Only polls of the calls' own futures count, not the runtime that polls them. For instructions a
//! program runs itself once more, in valgrind, which counts while [`counted`] runs. For allocations a
//! program has an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// The system's allocator, and how often it was asked, for how much. That takes a few instructions
/// itself: some thirty of the thousands of a call.
pub(crate) struct Counting;

static ASKED: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is left to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(size as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What one call takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
    pub(crate) bytes: f64,
}

impl Cost {
    pub(crate) fn beyond(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            allocations: self.allocations - other.allocations,
            bytes: self.bytes - other.bytes,
        }
    }
}

/// A future of which every poll is counted.
pub(crate) struct Counted<F>(pub(crate) F);

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = Pin::new(&mut self.0);
        counted(|| future.poll(context))
    }
}

static COUNTED_ASKED: AtomicU64 = AtomicU64::new(0);
static COUNTED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Runs what is to be counted. Valgrind knows it by its name, so it is never inlined, and must not be
/// called within itself.
#[inline(never)]
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> T {
    let (asked, bytes) = (&ASKED, &BYTES);
    let before = (asked.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
    let output = work();
    COUNTED_ASKED.fetch_add(asked.load(Ordering::Relaxed) - before.0, Ordering::Relaxed);
    COUNTED_BYTES.fetch_add(bytes.load(Ordering::Relaxed) - before.1, Ordering::Relaxed);
    output
}

const PATTERN: &str = "--toggle-collect=*support::count::counted*";
const ALLOCATED: &str = "allocations and bytes:";

/// What the counted calls of a program took, said at its end for [`costs`] to read.
pub(crate) fn tell_allocations() {
    let asked = COUNTED_ASKED.load(Ordering::Relaxed);
    println!(
        "{ALLOCATED} {asked} {}",
        COUNTED_BYTES.load(Ordering::Relaxed)
    );
}

/// A run of this very program, with `--run` and these arguments, in which it counts so many calls.
pub(crate) struct Job {
    args: Vec<String>,
    calls: u32,
    /// Memory that was freed stays at hand, however much of it there is.
    memory_at_hand: bool,
}

/// glibc keeps seven free pieces of each size at hand for a thread. With more in use at a time, what it takes to have
/// one depends on glibc's own searching, and not only on who asks.
const KEEP_ALL: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=65535");

impl Job {
    pub(crate) fn new(args: &[&str], calls: u32) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self {
            args,
            calls,
            memory_at_hand: false,
        }
    }

    pub(crate) fn with_memory_at_hand(self) -> Self {
        Self {
            memory_at_hand: true,
            ..self
        }
    }

    /// What one of the calls took.
    fn cost(&self) -> Cost {
        let program = std::env::current_exe().expect("this program has a path");
        let output = Command::new("valgrind")
            .args([
                "--tool=callgrind",
                "--callgrind-out-file=/dev/null",
                PATTERN,
            ])
            .arg(&program)
            .arg("--run")
            .args(&self.args)
            .envs(self.memory_at_hand.then_some(KEEP_ALL))
            .stdin(Stdio::null())
            .output()
            .expect("valgrind is installed");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let instructions = numbers(&said, "Collected : ");
        let told = String::from_utf8_lossy(&output.stdout);
        let allocated = numbers(&told, ALLOCATED);
        assert!(instructions[0] > 0.0, "nothing was counted: {output:?}");
        let each = |total: f64| total / f64::from(self.calls);
        Cost {
            instructions: each(instructions[0]),
            allocations: each(allocated[0]),
            bytes: each(allocated[1]),
        }
    }
}

/// What one call takes in each of these, in their order. They run side by side, for how long they take
/// does not matter.
pub(crate) fn costs(jobs: &[Job]) -> Vec<Cost> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![Cost::default(); jobs.len()]);
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(place) else {
                return;
            };
            let cost = job.cost();
            done.lock().unwrap()[place] = cost;
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap()
}

/// The numbers that stand behind `label`, up to the end of the line.
fn numbers(said: &str, label: &str) -> Vec<f64> {
    let (_, rest) = said.split_once(label).expect("the count is told");
    let line = rest.lines().next().unwrap_or_default();
    let numbers = line.split_whitespace().map(|number| number.parse());
    numbers.collect::<Result<_, _>>().expect("numbers")
}
