//! The cost of a call, compared with the bare client and reqwest-retry.
//!
//! `cargo bench -p proof --bench call_cost` prints, for each kind of call and each stack of
//! middlewares, how many instructions and allocations it adds to the bare middleware client. It needs
//! `valgrind`. With `-- --check` it fails if a promised ratio is exceeded. The same program counts up to 1 % differently
//! in another folder, because the layout of the heap differs.

mod support;

use std::pin::pin;
use std::sync::atomic::Ordering;

use support::cases::{CASES, Case, ODD_CASES};
use support::count::{Counted, Counting, Job, costs, print_allocations};
use support::stacks::{STACKS, Stack, Trouble};
use support::table::{Table, ratio, whole};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_UP: u32 = 100;
const CALLS: u32 = 400;
/// If a third of the calls failed, the throttle would close. This bench does not measure that.
const CALMING: u32 = 20;
const URL: &str = "http://localhost:8080/v1/orders?page=7";

/// The most that the retry may add, relative to reqwest-retry.
fn promise(case: Case) -> Option<f64> {
    match case {
        Case::Get | Case::NotFound | Case::Later | Case::GetEmpty => Some(1.0),
        Case::PostWithKey | Case::Large => Some(1.0),
        Case::Post | Case::PostEmpty => Some(0.5),
        Case::Recovers => Some(2.0),
    }
}

/// The most that "everything on" may add, relative to reqwest-retry.
const EVERYTHING_ADDS: f64 = 2.5;
/// The most that retry and throttle may add to a call without a wait, relative to reqwest-retry.
const THROTTLED: f64 = 1.5;

/// The most that a call whose body is not inspected may take with a rule for errors, relative to one without rules. The
/// difference is 0, but the layout of the heap differs.
const NOT_INSPECTED: f64 = 1.01;
/// The most that a whole call with everything on may take, relative to one with reqwest-retry.
const EVERYTHING: f64 = 2.0;
/// The most bytes that a call with a body of 1 MiB may allocate. The body is shared, not copied.
const LARGE_MAY_ADD: f64 = 16.0 * 1024.0;

fn run(stack: Stack, case: Case) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let server = case.server();
    let failures = server.failures.clone();
    let fails = case.trouble() != Trouble::None && stack != Stack::Bare;
    let client = stack.client(case.trouble(), Some(server));
    let call = || async {
        let response = case.request(stack, &client, URL).send().await.unwrap();
        assert_eq!(response.status(), case.status());
    };
    runtime.block_on(async {
        for _ in 0..WARM_UP {
            call().await;
        }
        for _ in 0..CALLS {
            if fails {
                for _ in 0..CALMING {
                    call().await;
                }
                failures.store(1, Ordering::Relaxed);
            }
            Counted(pin!(call())).await;
            assert_eq!(failures.load(Ordering::Relaxed), 0);
        }
    });
    print_allocations();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["--run", stack, case] = args[..] {
        return run(Stack::named(stack), Case::named(case));
    }
    let mut rows = Vec::new();
    for case in CASES {
        rows.extend(STACKS.map(|stack| (case, stack)));
    }
    rows.push((Case::Get, Stack::Observed));
    rows.push((Case::Get, Stack::Inspecting));
    for case in ODD_CASES {
        rows.extend([Stack::Bare, Stack::ReqwestRetry, Stack::Retry].map(|stack| (case, stack)));
    }
    let job = |(case, stack): &(Case, Stack)| Job::new(&[stack.name(), case.name()], CALLS);
    let jobs: Vec<Job> = rows.iter().map(job).collect();
    let costs = costs(&jobs);
    let cost_of = |case: Case, stack: Stack| {
        let place = rows.iter().position(|row| *row == (case, stack));
        costs[place.expect("a measured case")]
    };

    let mut broken = Vec::new();
    let mut table = Table::new([
        "call",
        "stack",
        "instructions added",
        "× reqwest-retry",
        "allocations added",
        "× reqwest-retry",
        "bytes added",
        "whole call × reqwest-retry's",
    ]);
    for (case, stack) in &rows {
        let bare = cost_of(*case, Stack::Bare);
        let peer = cost_of(*case, Stack::ReqwestRetry);
        let own = cost_of(*case, *stack);
        let (added, peer_added) = (own.beyond(bare), peer.beyond(bare));
        let instructions = added.instructions / peer_added.instructions;
        let allocations = added.allocations / peer_added.allocations;
        let entire = own.instructions / peer.instructions;
        table.row([
            case.name().to_owned(),
            stack.name().to_owned(),
            whole(added.instructions),
            ratio(instructions),
            whole(added.allocations),
            ratio(allocations),
            whole(added.bytes),
            ratio(entire),
        ]);
        let name = || format!("{}, {}", case.name(), stack.name());
        let worst = instructions.max(allocations);
        let most = match stack {
            Stack::Retry => promise(*case),
            Stack::Observed | Stack::Inspecting => Some(1.0),
            Stack::Throttled if *case != Case::Recovers => Some(THROTTLED),
            Stack::Everything => Some(EVERYTHING_ADDS),
            _ => None,
        };
        match most {
            Some(most) if worst > most => broken.push(format!("{}: {worst:.3}", name())),
            _ => {}
        }
        if *stack == Stack::Everything && entire > EVERYTHING {
            broken.push(format!("{}, whole: {entire:.3}", name()));
        }
        let without_rules = cost_of(*case, Stack::Retry).instructions;
        if *stack == Stack::Inspecting && own.instructions > NOT_INSPECTED * without_rules {
            broken.push(format!(
                "{}: {} instead of {without_rules}",
                name(),
                own.instructions
            ));
        }
        if *case == Case::Large && added.bytes > LARGE_MAY_ADD {
            broken.push(format!("{}: {} bytes", name(), added.bytes));
        }
    }
    println!("{table}");
    if args.contains(&"--check") && !broken.is_empty() {
        panic!("more than promised: {}", broken.join("; "));
    }
}
