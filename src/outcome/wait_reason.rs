//! Why a call waited before an attempt.

labelled! {
    /// Says why a call waited before a retry, or what made the wait that long.
    pub enum WaitReason {
        /// The [`Backoff`](crate::Backoff) of the call's own attempts.
        Backoff = "backoff",
        /// The host failed several times in a row, for this call or others, so the backoff was longer.
        HostFailures = "host_failures",
        /// The server asked for it.
        ServerHint = "server_hint",
        /// The budget was empty, or others waited in line already. The call waited there until it was released.
        Budget = "budget",
    }
}
