//! What a call and those inside it may do together: a chain of links, one for each call and scope.
//!
//! A client inside a client, or a token that is fetched by a middleware, retries by itself; and if
//! all that fails, the outer call retries the whole of it. So layers multiply. Here each draws from
//! all that are around it.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use tokio::time::Instant;

use super::current::{carried_scope, with_current};
use super::retries_left;
use super::scope::Scope;

/// What one call or scope allows, linked to the one around it.
#[derive(Debug)]
struct Link {
    left: Left,
    /// No later than that of any link around it.
    deadline: Option<Instant>,
    opener: Opener,
    around: Option<Arc<Link>>,
}

/// What opened a link. Addresses, to compare and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opener {
    /// It is a call that could be retried.
    pub(crate) can_retry: bool,
    /// Of its budget.
    pub(crate) budget: usize,
}

#[derive(Debug)]
enum Left {
    /// One call's own.
    Own(AtomicU32),
    /// A scope's, which several tasks may share.
    Shared(Arc<AtomicU32>),
}

impl Left {
    fn count(&self) -> &AtomicU32 {
        match self {
            Self::Own(left) => left,
            Self::Shared(left) => left,
        }
    }
}

impl Link {
    fn new(
        left: Left,
        deadline: Option<Instant>,
        opener: Opener,
        around: Option<Arc<Link>>,
    ) -> Self {
        let limit = around.as_ref().and_then(|around| around.deadline);
        let deadline = match (deadline, limit) {
            (Some(own), Some(limit)) => Some(own.min(limit)),
            (own, limit) => own.or(limit),
        };
        Self {
            left,
            deadline,
            opener,
            around,
        }
    }

    fn of_scope(scope: &Scope, around: Option<Arc<Link>>) -> Self {
        // One that is opened within itself is not drawn from twice.
        let left = match &around {
            Some(around) if around.draws_from(scope) => Left::Own(u32::MAX.into()),
            _ => Left::Shared(scope.left().clone()),
        };
        Self::new(left, scope.end(), Opener::default(), around)
    }

    /// Whether this scope is among them.
    fn draws_from(&self, scope: &Scope) -> bool {
        let own: *const AtomicU32 = &**scope.left();
        self.counters().any(|left| std::ptr::eq(left, own))
    }

    /// This one, and all around it.
    fn chain(&self) -> impl Iterator<Item = &Self> + Clone {
        std::iter::successors(Some(self), |link| link.around.as_deref())
    }

    /// How many retries are left in each.
    fn counters(&self) -> impl Iterator<Item = &AtomicU32> + Clone {
        self.chain().map(|link| link.left.count())
    }

    fn any_around(&self, mut is: impl FnMut(&Opener) -> bool) -> bool {
        self.chain().skip(1).any(|link| is(&link.opener))
    }
}

/// What is around whatever begins here.
fn around() -> Option<Arc<Link>> {
    let current = with_current(Allowance::share).flatten();
    match carried_scope() {
        Some(scope) if !current.as_ref().is_some_and(|link| link.draws_from(&scope)) => {
            Some(Arc::new(Link::of_scope(&scope, current)))
        }
        _ => current,
    }
}

/// A retry that was taken but not sent yet. Unless it is sent, it is put back when dropped.
#[must_use = "it is put back when dropped"]
pub(crate) struct Draw(Option<Arc<Link>>);

impl Draw {
    pub(crate) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Draw {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            retries_left::put_back(link.counters());
        }
    }
}

/// What is left of a call's retries and time, for itself and for those inside it.
///
/// It is shared only when somebody asks: most calls have none inside, and pay no allocation.
#[derive(Debug)]
pub(crate) struct Allowance {
    own: Option<Link>,
    shared: Option<Arc<Link>>,
}

impl Allowance {
    /// For a call that begins here.
    pub(crate) fn open(retries: u32, deadline: Option<Instant>, opener: Opener) -> Self {
        let left = Left::Own(retries.into());
        Self {
            own: Some(Link::new(left, deadline, opener, around())),
            shared: None,
        }
    }

    /// For a scope that is opened here, and whose retries may be shared.
    pub(super) fn open_scope(scope: &Scope) -> Self {
        Self {
            own: Some(Link::of_scope(scope, around())),
            shared: None,
        }
    }

    /// Whether another call or scope is around it.
    pub(crate) fn is_nested(&self) -> bool {
        self.link().is_some_and(|link| link.around.is_some())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.link().and_then(|link| link.deadline)
    }

    /// Whether this call could be retried, and another one around it as well.
    pub(crate) fn is_in_another_call(&self) -> bool {
        let is_nested = |link: &Link| link.opener.can_retry && link.any_around(|it| it.can_retry);
        self.link().is_some_and(is_nested)
    }

    /// Whether a call around this one has the same budget.
    pub(crate) fn shares_budget(&self) -> bool {
        let is_shared = |link: &Link| link.any_around(|it| it.budget == link.opener.budget);
        self.link().is_some_and(is_shared)
    }

    /// Takes a retry, if this call and all around it have one left.
    pub(crate) fn draw(&mut self) -> Option<Draw> {
        if let Some(left) = self.only_counter() {
            // The draw need not know of it, and it need not be shared for that.
            return retries_left::take(iter::once(left)).then_some(Draw(None));
        }
        let link = self.share()?;
        retries_left::take(link.counters()).then(|| Draw(Some(link)))
    }

    /// Puts back a retry that was not sent, where the draw could not do that by itself when it was dropped.
    pub(crate) fn put_back(&self) {
        retries_left::put_back(self.only_counter().into_iter());
    }

    /// What is left, if nothing is around this call: then nobody outside has to know. A call that goes on puts back
    /// what it does not send; one that is over takes its counter with it.
    fn only_counter(&self) -> Option<&AtomicU32> {
        let link = self.link().filter(|link| link.around.is_none())?;
        Some(link.left.count())
    }

    fn link(&self) -> Option<&Link> {
        self.own.as_ref().or(self.shared.as_deref())
    }

    fn share(&mut self) -> Option<Arc<Link>> {
        if let Some(own) = self.own.take() {
            self.shared = Some(Arc::new(own));
        }
        self.shared.clone()
    }
}
