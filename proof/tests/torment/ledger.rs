//! The ledger of a payment server: one effect per key, and one per request without a key.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// A request that arrived completely.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// The number of the call, the same for every attempt.
    pub(crate) call: u32,
    pub(crate) key: Option<String>,
}

/// Returns the body of a call.
pub(crate) fn body_of(call: u32) -> String {
    format!("order of call {call}")
}

/// The response of the server after the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) call: u32,
    /// Unique for each effect.
    pub(crate) number: u64,
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} has receipt {}", self.call, self.number)
    }
}

impl Receipt {
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (call, number) = text.strip_prefix("call ")?.split_once(" has receipt ")?;
        Some(Self {
            call: call.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// The state of an order in the ledger.
pub(crate) enum Entry {
    /// New. The work comes next, then [`Ledger::finish`].
    Fresh,
    /// Already done for this key.
    Known(Receipt),
    /// In progress for this key.
    InProgress,
}

/// The ledger's record of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Requests that reached the ledger.
    pub(crate) arrivals: u32,
    pub(crate) effects: u32,
    /// The receipt of the last effect.
    pub(crate) receipt: u64,
}

#[derive(Default)]
struct Pages {
    by_call: BTreeMap<u32, Record>,
    by_key: HashMap<String, Option<Receipt>>,
    /// Orders in progress.
    open: usize,
    last_receipt: u64,
    replays: u64,
    in_progress: u64,
    garbled: u64,
}

/// All work since the ledger was last closed.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Pages>);

/// The contents of a closed ledger.
pub(crate) struct Closed {
    pub(crate) by_call: BTreeMap<u32, Record>,
    /// How often an order got the receipt of an earlier one.
    pub(crate) replays: u64,
    /// How often an order arrived while another one with its key was in progress.
    pub(crate) in_progress: u64,
    /// How often a request differed from what the client sent.
    pub(crate) garbled: u64,
}

impl Ledger {
    /// Reads an order, if the request is valid.
    pub(crate) fn read(
        &self,
        call: Option<u32>,
        key: Option<String>,
        body: &[u8],
    ) -> Option<Order> {
        let call = call.filter(|call| body == body_of(*call).as_bytes());
        if call.is_none() {
            self.pages().garbled += 1;
        }
        Some(Order { call: call?, key })
    }

    pub(crate) fn begin(&self, order: &Order) -> Entry {
        let mut pages = self.pages();
        pages.by_call.entry(order.call).or_default().arrivals += 1;
        let Some(key) = &order.key else {
            pages.open += 1;
            return Entry::Fresh;
        };
        match pages.by_key.get(key).copied() {
            Some(Some(receipt)) => {
                pages.replays += 1;
                Entry::Known(receipt)
            }
            Some(None) => {
                pages.in_progress += 1;
                Entry::InProgress
            }
            None => {
                pages.open += 1;
                pages.by_key.insert(key.clone(), None);
                Entry::Fresh
            }
        }
    }

    /// The effect.
    pub(crate) fn finish(&self, order: &Order) -> Receipt {
        let mut pages = self.pages();
        pages.open -= 1;
        pages.last_receipt += 1;
        let receipt = Receipt {
            call: order.call,
            number: pages.last_receipt,
        };
        let record = pages.by_call.entry(order.call).or_default();
        record.effects += 1;
        record.receipt = receipt.number;
        if let Some(key) = &order.key {
            pages.by_key.insert(key.clone(), Some(receipt));
        }
        receipt
    }

    /// Waits until no order is in progress, so that late effects count, and closes the ledger.
    pub(crate) async fn close(&self) -> Closed {
        while self.pages().open > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let pages = std::mem::take(&mut *self.pages());
        Closed {
            by_call: pages.by_call,
            replays: pages.replays,
            in_progress: pages.in_progress,
            garbled: pages.garbled,
        }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap()
    }
}
