//! What holds the queue of a throttle back.

labelled! {
    /// Says which limit of a [`ThrottleMiddleware`](crate::ThrottleMiddleware) the first call in a queue waits for.
    pub enum GateLimit {
        /// The gate pauses: see [`BreakerState::Paused`](crate::observe::BreakerState::Paused).
        Pause = "pause",
        /// A probe is in flight, and nothing else may go before its response.
        Probe = "probe",
        /// The quota that the server announced is used up, as this client counts.
        Quota = "quota",
        /// The learned number of requests in flight: see [`GateView::window`](crate::observe::GateView::window).
        Window = "window",
        /// The learned rate: see [`GateView::pace`](crate::observe::GateView::pace).
        Pace = "pace",
        /// The setting [`max_in_flight`](crate::ThrottleMiddlewareBuilder::max_in_flight).
        MaxInFlight = "max_in_flight",
        /// The setting [`rate`](crate::ThrottleMiddlewareBuilder::rate), for this client alone.
        Rate = "rate",
        /// The rate that a [fleet](crate::fleet) shares: this worker has no token now.
        Fleet = "fleet",
    }
}
