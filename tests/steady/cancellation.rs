//! A call may be dropped wherever it waits, in any of the three middlewares. Unsent retries are
//! refunded, its slots are free, its followers get a response, and sent requests are paid.

mod counts;
mod crowd;
mod cut;
mod scenarios;
mod script;
mod stack;

use std::time::Duration;

use reqwest_steady::Scope;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

use cut::{Cut, Moment};
use scenarios::{SCENARIOS, Scenario};
use script::RESPONSE_TIME;
use stack::{SCOPE, Stack, fresh};

use crate::support::stacks::MS;

/// Long enough for a throttle to forget what it learned from failures.
const CALM: Duration = Duration::from_secs(300);

impl Scenario {
    /// Starts the other calls. Each must end as planned, whatever happens to the dropped call.
    fn begin_others(&self, stack: &Stack) -> Vec<tokio::task::JoinHandle<()>> {
        let others = self.others.iter().enumerate();
        let spawn = |(number, (begins, path)): (usize, &(u32, &'static str))| {
            let request = stack.get(path, &format!("other {number}"));
            let (name, begins, fails) = (self.name, *begins, number < self.failing);
            tokio::spawn(async move {
                sleep(begins * MS).await;
                match request.send().await {
                    Err(_) if fails => {}
                    Ok(response) if !fails && response.status() == 200 => {
                        response.text().await.unwrap();
                    }
                    result => panic!("{name}, {number}: {result:?}"),
                }
            })
        };
        others.map(spawn).collect()
    }

    async fn call(&self, stack: &Stack) {
        sleep(self.begins * MS).await;
        let request = (self.request)(stack.get(self.path, "dropped"));
        // The result does not matter.
        let _ = request.send().await;
    }

    fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// The extra time if other calls wait for this one's response: one of them sends the request again.
    fn handover_time(&self) -> Duration {
        match self.others.iter().any(|(_, path)| *path == self.path) {
            true => RESPONSE_TIME,
            false => Duration::ZERO,
        }
    }
}

/// Duration of a call that starts at this time, if no call is dropped.
async fn fresh_without_a_drop(scenario: &Scenario, at: Duration) -> Duration {
    let stack = Stack::new(&scenario.setup, scenario.script);
    let start = Instant::now();
    let others = scenario.begin_others(&stack);
    let without_drop = async {
        sleep_until(start + at + MS).await;
        fresh(&stack).await
    };
    let (_, took) = tokio::join!(scenario.call(&stack), without_drop);
    for other in others {
        other.await.unwrap();
    }
    took
}

/// Drops the call at `cut` and checks everything. Returns whether the call ended before that.
async fn check(scenario: &Scenario, cut: Cut) -> bool {
    let place = &format!("{}, {cut:?}", scenario.name);
    let stack = Stack::new(&scenario.setup, scenario.script);
    #[cfg(feature = "metrics")]
    let _measured = stack.measure();
    let scope = Scope::new().max_retries(SCOPE);
    let start = Instant::now();
    let others = scenario.begin_others(&stack);
    let ended = cut.off(scope.clone().run(scenario.call(&stack))).await;

    let at = start.elapsed();
    stack.assert_paid(place);
    let sent = stack.record.of("dropped");
    if scenario.is_alone() {
        let counts = stack.events.counts();
        counts.assert_all_ended(place);
        counts.assert_throttle_empty(place);
        // No task is left except the delivery of a letter and the end of a pause.
        let running = Handle::current().metrics().num_alive_tasks();
        let expected = counts.given_up - counts.letters + stack.pause_timers();
        assert!(running <= expected, "{place}: {counts:?}");
    }

    // The next call does not wait for the dropped one. It starts 1 ms later, when all woken tasks have
    // run.
    sleep(MS).await;
    let took = fresh(&stack).await;
    for other in others {
        other.await.unwrap();
    }
    let without = fresh_without_a_drop(scenario, at).await;
    let longest = without.saturating_add(scenario.chance + scenario.handover_time());
    assert!(
        took <= longest,
        "{place}: {took:?}, without a drop {without:?}"
    );

    sleep(CALM).await;
    stack.assert_paid(place);
    stack.assert_empty(place);
    stack.events.counts().assert_throttle_empty(place);
    #[cfg(feature = "metrics")]
    stack.assert_gauges(place);
    assert_eq!(stack.record.of("dropped"), sent, "{place}");
    stack.assert_drawn(&scope, "dropped", place).await;
    let took = fresh(&stack).await;
    assert!(took <= RESPONSE_TIME + scenario.chance, "{place}: {took:?}");
    ended.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_point_leaves_nothing_behind() {
    for scenario in &SCENARIOS {
        for moment in [Moment::Asleep, Moment::Woken] {
            let mut points = 0;
            loop {
                let suspension = points + usize::from(moment == Moment::Asleep);
                let cut = Cut { suspension, moment };
                if check(scenario, cut).await {
                    break;
                }
                points += 1;
            }
            println!("{}: {points} points, {moment:?}", scenario.name);
            assert!(
                points >= scenario.points,
                "{}: {points} points",
                scenario.name
            );
        }
        assert!(check(scenario, Cut::NEVER).await);
    }
}
