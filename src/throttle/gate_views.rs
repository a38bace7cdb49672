//! What a throttle shows of its gates at one moment.

use std::cmp::Reverse;

use super::ThrottleMiddleware;
use crate::observe::GateView;

impl ThrottleMiddleware {
    /// Returns the gates of each host, with its name. Those of one host may be in several places.
    pub(crate) fn gates_by_host(&self) -> Vec<(String, GateView)> {
        let (gates, config) = (self.throttle.gates.values(), self.config());
        let with_host = gates.iter().filter_map(|gate| Some((gate.host()?, gate)));
        let views = with_host.map(|(host, gate)| (host.to_owned(), gate.view(&config)));
        views.collect()
    }

    /// Returns the gates of one host.
    pub(crate) fn gates_of(&self, host: &str) -> Vec<GateView> {
        let (gates, config) = (self.throttle.gates.values(), self.config());
        let of_host = gates.iter().filter(|gate| gate.host() == Some(host));
        of_host.map(|gate| gate.view(&config)).collect()
    }

    /// Returns the gates whose keys a function of the user made, the longest queue first.
    pub(crate) fn private_gates(&self) -> Vec<GateView> {
        let (gates, config) = (self.throttle.gates.values(), self.config());
        let private = gates.iter().filter(|gate| gate.host().is_none());
        let mut views: Vec<_> = private.map(|gate| gate.view(&config)).collect();
        views.sort_by_key(|gate| Reverse((gate.queued, gate.in_flight)));
        views
    }
}
