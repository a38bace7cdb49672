//! Counts the instructions and allocations of calls. The counts do not depend on the load of the machine.
//!
//! Only the polls of the calls' futures count, not the runtime. To count instructions, a program runs itself again under
//! valgrind, which counts while [`counted`] runs. To count allocations, a program has a counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// The system's allocator, which counts allocations and bytes. Counting takes about 30 instructions of the thousands of a
/// call.
pub(crate) struct Counting;

static ASKED: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: all work is done by the system's allocator, which keeps the contract.
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

/// The cost of one call.
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

/// A future whose polls are counted.
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

/// Runs the code to count. Valgrind finds this function by name, so it is never inlined. It must not be nested.
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

/// Prints the allocations of the counted calls at the end of a program, for [`costs`] to read.
pub(crate) fn print_allocations() {
    let allocations = COUNTED_ASKED.load(Ordering::Relaxed);
    println!(
        "{ALLOCATED} {allocations} {}",
        COUNTED_BYTES.load(Ordering::Relaxed)
    );
}

/// A run of this program with `--run` and these arguments, which counts this many calls.
pub(crate) struct Job {
    args: Vec<String>,
    calls: u32,
    /// Whether glibc caches all freed memory.
    memory_at_hand: bool,
}

/// glibc caches seven free chunks of each size per thread. Beyond that, the cost of an allocation depends on its search.
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

    /// Runs the program and returns the cost per call.
    fn cost(&self) -> Cost {
        let program = std::env::current_exe().expect("the path of this program");
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
        let stderr = String::from_utf8_lossy(&output.stderr);
        let instructions = numbers(&stderr, "Collected : ");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let allocated = numbers(&stdout, ALLOCATED);
        assert!(instructions[0] > 0.0, "nothing was counted: {output:?}");
        let each = |total: f64| total / f64::from(self.calls);
        Cost {
            instructions: each(instructions[0]),
            allocations: each(allocated[0]),
            bytes: each(allocated[1]),
        }
    }
}

/// Returns the cost per call of each job, in order. The jobs run in parallel, because their duration does not matter.
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

/// Returns the numbers after `label`, up to the end of the line.
fn numbers(output: &str, label: &str) -> Vec<f64> {
    let (_, rest) = output.split_once(label).expect("the label");
    let line = rest.lines().next().unwrap_or_default();
    let numbers = line.split_whitespace().map(|number| number.parse());
    numbers.collect::<Result<_, _>>().expect("numbers")
}
