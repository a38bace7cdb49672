//! The part of a budget that is shared with other workers.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{Budget, Limited, Paid, Withdrawal};
use crate::clock;
use crate::fleet::{FleetLimits, KeyKind, Payment, RetriesAsk, RetryTerms, SharedRetries};

/// What all workers have of the budget of one host, as this one knows it.
pub(super) struct Common {
    fleet: FleetLimits,
    key: String,
    retries: SharedRetries,
    /// One asks at a time: what it is given may be enough for all who wait.
    turn: tokio::sync::Mutex<()>,
}

impl Common {
    pub(super) fn new(fleet: &FleetLimits, host: &str, terms: RetryTerms) -> Self {
        Self {
            fleet: fleet.clone(),
            key: FleetLimits::key(KeyKind::Retry, host, false),
            retries: SharedRetries::new(terms, fleet.period()),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// A retry that was paid for was not sent.
    pub(super) fn put_back(&self) {
        self.retries.put_back();
    }

    /// How many share it, as far as is known.
    pub(super) fn workers(&self) -> i64 {
        self.fleet.workers().into()
    }

    /// Pays for a retry when it is its turn to ask, if that is still needed.
    async fn pay(&self, limited: &Limited) -> Payment {
        let _turn = self.turn.lock().await;
        let now = limited.age(clock::now());
        match self.retries.take_again(now) {
            Payment::Ask => {
                self.ask(limited, self.retries.ask(now)).await;
                self.retries.take_again(limited.age(clock::now()))
            }
            payment => payment,
        }
    }

    async fn ask(&self, limited: &Limited, ask: RetriesAsk) {
        let answer = self.fleet.retries(&self.key, ask).await;
        let now = limited.age(clock::now());
        self.retries.answered(now, &ask, answer.map_err(|_| ()));
    }
}

impl Limited {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.born)
    }
}

impl Budget {
    /// Whether it is shared with other workers.
    #[inline]
    pub(crate) fn is_common(&self) -> bool {
        (self.0.as_ref()).is_some_and(|limited| limited.common.is_some())
    }

    /// Credits a call for all.
    pub(super) fn deposit_for_all(&self, now: Instant) {
        let Some((limited, common)) = self.common() else {
            return;
        };
        if !common.retries.deposit(limited.age(now)) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let Some(flush) = common.retries.flush(limited.age(now)) else {
            return;
        };
        let budget = self.clone();
        runtime.spawn(async move {
            if let Some((limited, common)) = budget.common() {
                common.ask(limited, flush).await;
            }
        });
    }

    /// Pays for one retry from what all workers have, and asks the store if need be; or else from its own.
    pub(crate) async fn withdraw_from_all(&self) -> Option<Withdrawal> {
        let (limited, common) = self.common()?;
        let mut payment = common.retries.take(limited.age(clock::now()));
        if payment == Payment::Ask {
            let end = clock::after(clock::now(), common.fleet.max_wait());
            let asked = clock::within(end, common.pay(limited)).await;
            payment = asked.unwrap_or(Payment::Away);
        }
        match payment {
            Payment::Paid => Some(Withdrawal(Some((Arc::clone(limited), Paid::ByAll)))),
            Payment::Ask | Payment::Refused => None,
            Payment::Away => self.withdraw_at(clock::now()),
        }
    }

    fn common(&self) -> Option<(&Arc<Limited>, &Common)> {
        let limited = self.0.as_ref()?;
        Some((limited, limited.common.as_deref()?))
    }
}
