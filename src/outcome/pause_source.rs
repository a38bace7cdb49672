//! Who made a throttle pause.

labelled! {
    /// Says why a [`ThrottleMiddleware`](crate::ThrottleMiddleware) pauses.
    pub enum PauseSource {
        /// A response asked for the pause, for example with `Retry-After`.
        Server = "server",
        /// The server refused a request (429) and named no pause, or a shorter one.
        Refusal = "refusal",
        /// The server fails too often, or does not respond to a probe.
        Failures = "failures",
        /// A response said that the quota is used up until a reset.
        Quota = "quota",
        /// A server asked another worker of the fleet to pause.
        Fleet = "fleet",
    }
}
