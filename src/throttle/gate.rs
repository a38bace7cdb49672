//! The gate of one key: its limits, its controller, and who waits before it.
//!
//! There is no task behind it. Whoever is next in the queue keeps the time, and whoever ends makes
//! room: every change is followed by letting through as many as may go now.

mod pass;
mod waiting;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::builder::Settings;
use super::controller::{Admission, Controller, MAX_PAUSE_JITTER, SendRecord, Time};
use super::key::{GateKey, Key};
use super::queue::{Limit, Place, Queue, State};
use super::rate::Bucket;
use super::sharing::{Sharing, ToTell};
use crate::admit;
use crate::clock;
use crate::fleet::{self, Lease, LeaseAsk, Share};
use crate::observe::{LoadChange, ThrottleLoad};
use crate::outcome::{Refusal, RefusalReason};
pub(super) use pass::Pass;
pub(super) use waiting::Waiting;

/// Giving up this much before a deadline is giving up before it: a timer may be late by half of it.
const MARGIN: Duration = Duration::from_millis(2);
/// What could not be given back is looked at again no sooner than this.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Gate {
    key: GateKey,
    /// Everything inside counts its time from here.
    born: Instant,
    room: Mutex<Room>,
    sharing: Option<Box<Sharing>>,
}

#[derive(Debug)]
struct Room {
    in_flight: u32,
    most_in_flight: u32,
    bucket: Option<Bucket>,
    /// In place of a bucket of its own, what it holds of one that many share.
    share: Option<Box<Share>>,
    /// Somebody looks from time to time whether there is something to give back.
    reminded: bool,
    controller: Option<Controller>,
    queue: Queue,
    /// Who keeps the time, and until when.
    timer: Option<(Place, Time)>,
    /// Nobody who waits has an earlier limit.
    first_limit: Option<Time>,
    last_used: Time,
    /// Somebody was told that it is closed.
    told_closed: Option<Time>,
}

/// What has become of a gate, for those who want to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum News {
    /// Nobody goes, for so long.
    Closed(Duration),
    Open,
}

/// What those who want to know are told of a change. Seen while the gate is locked anyway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) load: ThrottleLoad,
    pub(super) news: Option<News>,
}

/// What is left to do once the lock is free again.
#[derive(Default)]
struct Wakers {
    to_wake: Vec<Waker>,
    unused: Vec<Waker>,
    to_tell: ToTell,
}

/// How far a call has come.
pub(super) enum Entry<'a> {
    Passed(Pass<'a>, Option<Sight>),
    Waits(Waiting<'a>),
}

impl Gate {
    pub(super) fn new(key: GateKey, settings: &Settings, now: Instant) -> Self {
        Self {
            key,
            born: now,
            room: Mutex::new(Room::new(settings)),
            sharing: None,
        }
    }

    pub(super) fn shared_by(mut self, sharing: Sharing) -> Self {
        self.sharing = Some(Box::new(sharing));
        self
    }

    /// Makes another one of it, as good as new.
    pub(super) fn renew(&mut self, key: &Key<'_>, settings: &Settings, now: Instant) {
        key.clone_into(&mut self.key);
        self.born = now;
        *self.room.get_mut().unwrap_or_else(PoisonError::into_inner) = Room::new(settings);
    }

    /// The host of all its requests, if that is known.
    pub(super) fn host(&self) -> Option<&str> {
        self.key.host()
    }

    /// Whether forgetting it would lose something.
    pub(super) fn matters(&self, now: Instant) -> bool {
        const REMEMBERED: Duration = Duration::from_secs(60);
        let room = self.lock();
        if room.in_flight > 0 || !room.queue.is_empty() {
            return true;
        }
        let now = self.time(now);
        let learned = room
            .controller
            .as_ref()
            .is_some_and(|controller| controller.has_learned(now));
        let recent = now.saturating_sub(room.last_used) < REMEMBERED;
        let held = room.share.as_ref().and_then(|share| share.idle_at());
        room.not_before(now, 0) > now || (learned && recent) || held.is_some_and(|at| now < at)
    }

    /// Lets a call through, gives it a place in the queue, or refuses it. `again`: it was sent
    /// before, and waits before those that were not. `queued`: how long earlier attempts of the same call waited.
    /// `latest`: it must not be sent later.
    #[inline]
    pub(super) fn enter<'a>(
        &'a self,
        now: Instant,
        settings: &'a Settings,
        again: bool,
        queued: Duration,
        latest: Option<Instant>,
    ) -> Result<Entry<'a>, Refusal> {
        let now = self.time(now);
        let mut room = self.lock();
        room.last_used = now;
        if !room.queue.is_empty() || room.turn(now) != Admission::Now {
            let limit = self.limit(now, settings.max_wait.saturating_sub(queued), latest);
            let waiting = self.queue_up(room, now, settings, again, limit);
            return waiting.map(Entry::Waits);
        }
        let record = room.send(now);
        let sight = settings
            .is_watched()
            .then(|| room.sight(now, LoadChange::Sent));
        if room.share.is_some() {
            self.ask(room, now);
        }
        Ok(Entry::Passed(Pass::new(self, settings, record), sight))
    }

    #[cold]
    fn queue_up<'a>(
        &'a self,
        mut room: MutexGuard<'_, Room>,
        now: Time,
        settings: &'a Settings,
        again: bool,
        limit: Limit,
    ) -> Result<Waiting<'a>, Refusal> {
        let ahead = room.queue.len_of(again);
        let refused = if ahead >= settings.max_queue {
            Some(RefusalReason::QueueFull)
        } else if room.not_before(now, ahead) > limit.at {
            Some(limit.reason)
        } else {
            None
        };
        if let Some(reason) = refused {
            return Err(self.refusal(&room, reason, now));
        }
        let place = room.queue.push(again, now, limit);
        room.first_limit = Some(room.first_limit.map_or(limit.at, |at| at.min(limit.at)));
        self.ask(room, now);
        Ok(Waiting {
            gate: self,
            settings,
            place: Some(place),
        })
    }

    /// Asks the store, if there is one and something to ask, once the lock is free again.
    fn ask(&self, mut room: MutexGuard<'_, Room>, now: Time) {
        let ask = room.question(now);
        drop(room);
        // Most calls go by what was leased before.
        if ask.is_some() {
            self.tell(ToTell { ask, pause: None });
        }
    }

    /// Returns until when a call that arrives now may wait, at most `wait`.
    fn limit(&self, now: Time, wait: Duration, latest: Option<Instant>) -> Limit {
        let time = |end| self.time(end);
        let latest = latest.map(time);
        let longest = now.saturating_add(wait);
        let wait = Limit {
            at: latest.map_or(longest, |latest| latest.min(longest)),
            reason: RefusalReason::WaitTooLong,
        };
        let deadline = admit::current_deadline().map(time);
        let deadline = deadline.map(|end| end.saturating_sub(MARGIN));
        match deadline {
            Some(at) if at < wait.at => Limit {
                at,
                reason: RefusalReason::DeadlineTooClose,
            },
            _ => wait,
        }
    }

    fn refusal(&self, room: &Room, reason: RefusalReason, now: Time) -> Refusal {
        let depth = room.queue.len();
        Refusal {
            reason,
            key: self.key.text().to_owned(),
            shows_key: self.key.public().is_some(),
            host: String::new(),
            depth,
            retry_after: room.worth_trying(now, depth).saturating_sub(now),
        }
    }

    /// How much it has to do.
    pub(super) fn load(&self, change: LoadChange) -> ThrottleLoad {
        let now = self.now();
        self.lock().load(now, change)
    }

    /// What nobody was told yet.
    pub(super) fn news(&self) -> Option<News> {
        let now = self.now();
        self.lock().news(now)
    }

    /// What the store has answered.
    pub(super) fn told(&self, lease: Result<Lease, ()>) {
        let reminder = self.change(|room, now, _| {
            let share = room.share.as_mut()?;
            share.answered(now, lease);
            if let Some(controller) = &mut room.controller {
                if let Some(rate) = share.pace(controller.rate()) {
                    controller.adopt_rate(now, rate);
                }
            }
            let idle_at = share.idle_at().filter(|_| !room.reminded)?;
            room.reminded = true;
            Some(idle_at)
        });
        if let (Some(at), Some(sharing)) = (reminder, &self.sharing) {
            sharing.remind(clock::after(self.born, at));
        }
    }

    /// What it does not need any more, and when to look again.
    pub(super) fn give_back(&self) -> (Option<LeaseAsk>, Option<Instant>) {
        let now = self.now();
        let mut room = self.lock();
        let Some(share) = &mut room.share else {
            return (None, None);
        };
        let ask = share.give_back(now);
        let next = share.idle_at();
        room.reminded = next.is_some();
        // A question may be under way.
        let soon = now.saturating_add(LOOK_AGAIN);
        (ask, next.map(|at| clock::after(self.born, at.max(soon))))
    }

    /// Another worker was asked to wait for so long.
    pub(super) fn pause(&self, length: Duration) {
        self.change(|room, now, wakers| {
            if let Some(share) = &mut room.share {
                share.paused(now, length);
                room.refuse_hopeless(now, wakers);
            }
        });
    }

    #[inline]
    fn tell(&self, news: ToTell) {
        if let Some(sharing) = &self.sharing {
            sharing.tell(news);
        }
    }

    #[inline]
    fn now(&self) -> Time {
        self.time(clock::now())
    }

    #[inline]
    fn time(&self, at: Instant) -> Time {
        at.saturating_duration_since(self.born)
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Room> {
        // Nothing in here panics halfway through a change.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and lets through whoever may go now.
    fn change<T>(&self, change: impl FnOnce(&mut Room, Time, &mut Wakers) -> T) -> T {
        let now = self.now();
        let mut wakers = Wakers::default();
        let mut room = self.lock();
        let output = change(&mut room, now, &mut wakers);
        if !room.queue.is_empty() {
            room.let_through(now, &mut wakers);
        }
        self.settle(room, now, wakers);
        output
    }

    /// Does what is left to do after a change.
    fn settle(&self, mut room: MutexGuard<'_, Room>, now: Time, mut wakers: Wakers) {
        wakers.to_tell.ask = room.question(now);
        // Waking, or dropping a waker, may run anything: even something that comes back here.
        drop(room);
        self.tell(wakers.to_tell);
        wakers.to_wake.into_iter().for_each(Waker::wake);
    }
}

impl Room {
    fn new(settings: &Settings) -> Self {
        let controller = || Controller::new(settings.max_in_flight);
        Self {
            in_flight: 0,
            most_in_flight: settings.max_in_flight,
            bucket: settings.rate.map(Bucket::new),
            share: settings.common.as_ref().map(|common| {
                let share = common.fleet.share(common.rate);
                Box::new(match settings.adaptive {
                    true => share,
                    false => share.without_pauses(),
                })
            }),
            reminded: false,
            controller: settings.adaptive.then(controller),
            queue: Queue::default(),
            timer: None,
            first_limit: None,
            last_used: Time::ZERO,
            told_closed: None,
        }
    }

    /// When the next may go.
    #[inline]
    fn turn(&mut self, now: Time) -> Admission {
        if self.in_flight >= self.most_in_flight {
            return Admission::AfterResponse;
        }
        if let Some(bucket) = &self.bucket {
            let next = bucket.next(now, 0);
            if now < next {
                return Admission::At(next);
            }
        }
        if let Some(share) = &mut self.share {
            match share.turn(now) {
                fleet::Turn::Now => {}
                fleet::Turn::At(next) | fleet::Turn::WhenAnswered(next) => {
                    return Admission::At(next);
                }
            }
        }
        match &mut self.controller {
            Some(controller) => controller.admission(now, self.in_flight),
            None => Admission::Now,
        }
    }

    #[inline]
    fn send(&mut self, now: Time) -> Option<SendRecord> {
        self.in_flight += 1;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now);
        }
        if let Some(share) = &mut self.share {
            share.take(now);
        }
        self.controller
            .as_mut()
            .map(|controller| controller.send(now))
    }

    /// Takes back what was granted but never sent.
    fn unsend(&mut self, record: Option<SendRecord>) {
        self.in_flight -= 1;
        if let Some(bucket) = &mut self.bucket {
            bucket.put_back();
        }
        if let Some(share) = &mut self.share {
            share.put_back();
        }
        if let (Some(controller), Some(record)) = (&mut self.controller, record) {
            controller.undo_send(record);
        }
    }

    #[inline]
    fn sight(&mut self, now: Time, change: LoadChange) -> Sight {
        Sight {
            load: self.load(now, change),
            news: self.news(now),
        }
    }

    #[inline]
    fn load(&self, now: Time, change: LoadChange) -> ThrottleLoad {
        let waiting = self.queue.len();
        ThrottleLoad {
            change,
            in_flight: self.in_flight,
            waiting,
            oldest: match waiting {
                0 => Duration::ZERO,
                _ => self.queue.longest_wait(now),
            },
        }
    }

    /// What nobody was told yet.
    fn news(&mut self, now: Time) -> Option<News> {
        let controller = self.controller.as_ref()?;
        let closed = controller.closed_until(now);
        if now < closed {
            // Once for each time, however many answers say the same, give or take a second by chance.
            let told = self.told_closed.filter(|told| now < *told);
            if told.is_some_and(|told| closed <= told + MAX_PAUSE_JITTER) {
                return None;
            }
            self.told_closed = Some(closed);
            return Some(News::Closed(closed - now));
        }
        if controller.is_half_open() {
            // A gate that opens for a probe only, and closes again, was not open.
            return None;
        }
        self.told_closed.take().map(|_| News::Open)
    }

    /// What the store should be asked now.
    #[inline]
    fn question(&mut self, now: Time) -> Option<LeaseAsk> {
        let share = self.share.as_mut()?;
        share.ask(
            now,
            self.queue.len(),
            self.controller.as_ref().and_then(Controller::rate),
        )
    }

    /// One that comes now, with so many ahead, certainly cannot go earlier.
    fn not_before(&self, now: Time, ahead: usize) -> Time {
        let bucket = self.bucket.as_ref().map(|bucket| bucket.next(now, ahead));
        let share = (self.share.as_ref()).map(|share| share.not_before(now, ahead));
        let controller = self
            .controller
            .as_ref()
            .map(|controller| controller.closed_until(now));
        let limits = bucket.into_iter().chain(share).chain(controller);
        limits.fold(now, Time::max)
    }

    /// The same, as far as the rate that holds now can tell.
    fn worth_trying(&self, now: Time, ahead: usize) -> Time {
        let wait = self
            .controller
            .as_ref()
            .map(|controller| controller.time_for(ahead));
        let at_the_rate = now.saturating_add(wait.unwrap_or_default());
        self.not_before(now, ahead).max(at_the_rate)
    }

    /// Grants as many as may go now, and sees to it that somebody keeps the time for the rest.
    fn let_through(&mut self, now: Time, wakers: &mut Wakers) {
        while let Some(place) = self.next() {
            match self.turn(now) {
                Admission::Now => {
                    let record = self.send(now);
                    let waker = self.queue.settle(place, State::Granted(record));
                    wakers.to_wake.extend(waker);
                }
                Admission::At(due) => {
                    let kept = (self.timer).is_some_and(|(who, at)| who == place && at <= due);
                    if !kept {
                        let waker = self.queue.get(place).waker.take();
                        wakers.to_wake.extend(waker);
                    }
                    return;
                }
                Admission::AfterResponse => return,
            }
        }
        self.first_limit = None;
    }

    fn next(&self) -> Option<Place> {
        let probing = self
            .controller
            .as_ref()
            .is_some_and(Controller::is_half_open);
        self.queue.next(probing)
    }

    /// Those who cannot wait until the gate opens again need not wait at all.
    fn refuse_hopeless(&mut self, now: Time, wakers: &mut Wakers) {
        let closed = self
            .controller
            .as_ref()
            .map_or(now, |controller| controller.closed_until(now));
        let closed = (self.share.as_ref()).map_or(closed, |share| share.paused_until().max(closed));
        if self.first_limit.is_some_and(|first| first < closed) {
            self.queue.refuse_before(closed, &mut wakers.to_wake);
            self.first_limit = Some(closed);
        }
    }

    /// One who has waited as long as it can goes by what this worker knows, if it is only the store that does not
    /// respond: no call fails for that.
    fn stop_asking(&mut self, place: Place, now: Time, wakers: &mut Wakers) {
        let waiter = self.queue.get(place);
        if !matches!(waiter.state, State::Waiting) || now < waiter.limit.at {
            return;
        }
        if let Some(share) = &mut self.share {
            share.stop_waiting(now);
            self.let_through(now, wakers);
        }
    }

    /// When somebody has to look again who waits until `limit`. The next in the queue keeps the time.
    fn keep_time(&mut self, place: Place, limit: Time, now: Time) -> Time {
        // Whatever it was to keep, from now on it sleeps until what is returned here.
        self.timer = self.timer.filter(|(who, _)| *who != place);
        if self.next() != Some(place) {
            return limit;
        }
        match self.turn(now) {
            Admission::At(due) => {
                let until = limit.min(due);
                self.timer = Some((place, until));
                until
            }
            Admission::Now | Admission::AfterResponse => limit,
        }
    }

    fn leave(&mut self, place: Place, wakers: &mut Wakers) -> State {
        self.timer = self.timer.filter(|(who, _)| *who != place);
        wakers.unused.extend(self.queue.get(place).waker.take());
        self.queue.remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::super::signal::{Signal, SignalKind};
    use super::*;

    fn gate(settings: &Settings) -> Gate {
        Gate::new(GateKey::shown("api.example.com"), settings, clock::now())
    }

    fn enter<'a>(gate: &'a Gate, settings: &'a Settings) -> Entry<'a> {
        let entry = gate.enter(clock::now(), settings, false, Duration::ZERO, None);
        entry.unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    #[test]
    fn a_gate_matters_while_it_is_in_use_or_has_something_to_remember() {
        let settings = Settings {
            max_in_flight: 1,
            ..Settings::default()
        };
        let gate = gate(&settings);
        assert!(!gate.matters(clock::now()));
        let Entry::Passed(mut pass, _) = enter(&gate, &settings) else {
            panic!("nobody is there");
        };
        assert!(gate.matters(clock::now()));
        let Entry::Waits(waiting) = enter(&gate, &settings) else {
            panic!("the only place is taken");
        };
        let accepted = Signal {
            kind: SignalKind::Accepted,
            hint: None,
            quota: None,
        };
        pass.answered(&accepted);
        // The place was granted to the one that waits.
        assert!(gate.matters(clock::now()));
        drop(waiting);
        assert!(!gate.matters(clock::now()));

        let Entry::Passed(mut pass, _) = enter(&gate, &settings) else {
            panic!("the place is free again");
        };
        let kind = SignalKind::Refused;
        pass.answered(&Signal { kind, ..accepted });
        assert!(gate.matters(clock::now()));
    }
}
