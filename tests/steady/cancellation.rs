//! A call may be dropped wherever it waits, in any of the three middlewares. What it has not sent is
//! given back, what it held is free, those who counted on it get their answer, and what it has sent is
//! accounted for.

mod crowd;
mod cut;
mod script;
mod stack;
mod told;
mod worlds;

use std::time::Duration;

use reqwest_steady::Scope;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

use cut::{Cut, Moment};
use script::RESPONSE_TIME;
use stack::{SCOPE, Stack, fresh};
use worlds::{WORLDS, World};

use crate::support::stacks::MS;

/// Long enough for whatever was learned from a bad time to be forgotten.
const CALM: Duration = Duration::from_secs(300);

impl World {
    /// Begins the calls of others. Each ends as it should, whatever becomes of the one that is dropped.
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
        // Whatever comes of it.
        let _ = request.send().await;
    }

    fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// If others count on its answer, one of them asks in its place, and others wait for that one.
    fn in_its_place(&self) -> Duration {
        match self.others.iter().any(|(_, path)| *path == self.path) {
            true => RESPONSE_TIME,
            false => Duration::ZERO,
        }
    }
}

/// How long another call takes that begins at this time, in a world in which nobody is dropped.
async fn fresh_without_a_drop(world: &World, at: Duration) -> Duration {
    let stack = Stack::new(&world.setup, world.script);
    let start = Instant::now();
    let others = world.begin_others(&stack);
    let drop_nobody = async {
        sleep_until(start + at + MS).await;
        fresh(&stack).await
    };
    let (_, took) = tokio::join!(world.call(&stack), drop_nobody);
    for other in others {
        other.await.unwrap();
    }
    took
}

/// Drops the call there, and looks at all that can be seen. Says whether it had ended before.
async fn check(world: &World, cut: Cut) -> bool {
    let place = &format!("{}, {cut:?}", world.name);
    let stack = Stack::new(&world.setup, world.script);
    #[cfg(feature = "metrics")]
    let _measured = stack.measure();
    let scope = Scope::new().max_retries(SCOPE);
    let start = Instant::now();
    let others = world.begin_others(&stack);
    let ended = cut.off(scope.clone().run(world.call(&stack))).await;

    let at = start.elapsed();
    stack.assert_paid(place);
    let sent = stack.record.of("dropped");
    if world.is_alone() {
        let told = stack.told.counts();
        told.assert_all_ended(place);
        told.assert_throttle_empty(place);
        // Nothing is left running but a letter that is on its way.
        let running = Handle::current().metrics().num_alive_tasks();
        assert!(running <= told.given_up - told.letters, "{place}: {told:?}");
    }

    // The next one does not have to wait for it. A little later, when all that happens at this
    // moment has happened.
    sleep(MS).await;
    let took = fresh(&stack).await;
    for other in others {
        other.await.unwrap();
    }
    let without = fresh_without_a_drop(world, at).await;
    let longest = without.saturating_add(world.chance + world.in_its_place());
    assert!(took <= longest, "{place}: {took:?}, else {without:?}");

    sleep(CALM).await;
    stack.assert_paid(place);
    stack.assert_empty(place);
    stack.told.counts().assert_throttle_empty(place);
    #[cfg(feature = "metrics")]
    stack.assert_gauges(place);
    assert_eq!(stack.record.of("dropped"), sent, "{place}");
    stack.assert_drawn(&scope, "dropped", place).await;
    let took = fresh(&stack).await;
    assert!(took <= RESPONSE_TIME + world.chance, "{place}: {took:?}");
    ended.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_point_leaves_nothing_behind() {
    for world in &WORLDS {
        for moment in [Moment::Asleep, Moment::Woken] {
            let mut points = 0;
            loop {
                let suspension = points + usize::from(moment == Moment::Asleep);
                let cut = Cut { suspension, moment };
                if check(world, cut).await {
                    break;
                }
                points += 1;
            }
            println!("{}: {points} points, {moment:?}", world.name);
            assert!(points >= world.points, "{}: {points} points", world.name);
        }
        assert!(check(world, Cut::NEVER).await);
    }
}
