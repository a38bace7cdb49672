//! The server, in a separate process, so that the resources of the client process belong to the client alone.
//!
//! The client sends commands over a control connection, one per line. The server ends with that connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::faults::{Dice, Weather};
use crate::ledger::Ledger;
use crate::{front, http1, http2};

/// Longer than the client waits for a response.
pub(crate) const SLOW_WORK: Duration = Duration::from_millis(450);
/// Longer than any run. It ends a server whose client is gone.
const LONGEST_LIFE: Duration = Duration::from_secs(60 * 60);

/// The state that all connections share.
pub(crate) struct ServerState {
    pub(crate) dice: Dice,
    pub(crate) ledger: Ledger,
    /// Signals idle connections to end.
    pub(crate) hang_up: watch::Sender<()>,
}

/// Runs until the client closes the control connection.
pub(crate) async fn run(control: SocketAddr, seed: u64) -> io::Result<()> {
    let state = Arc::new(ServerState {
        dice: Dice::seeded(seed),
        ledger: Ledger::default(),
        hang_up: watch::Sender::new(()),
    });
    let http1 = TcpListener::bind("127.0.0.1:0").await?;
    let http2 = TcpListener::bind("127.0.0.1:0").await?;
    let balancer = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = TcpListener::bind("127.0.0.1:0").await?;
    // The port is reserved but does not listen, so connections are refused.
    let refusing = TcpSocket::new_v4()?;
    refusing.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;

    let mut control = BufReader::new(TcpStream::connect(control).await?);
    let addresses = format!(
        "{} {} {} {} {}\n",
        http1.local_addr()?,
        http2.local_addr()?,
        balancer.local_addr()?,
        proxy.local_addr()?,
        refusing.local_addr()?
    );
    control.write_all(addresses.as_bytes()).await?;
    let behind = front::Behind {
        http1: http1.local_addr()?,
        http2: http2.local_addr()?,
    };
    let accepting = accept(http1, http2, &state);
    let in_front = front::accept(balancer, proxy, behind, &state);
    let controlled = tokio::time::timeout(LONGEST_LIFE, run_commands(control, &state));
    tokio::select! {
        ended = accepting => ended,
        ended = in_front => ended,
        ended = controlled => ended?,
    }
}

async fn accept(
    http1: TcpListener,
    http2: TcpListener,
    state: &Arc<ServerState>,
) -> io::Result<()> {
    loop {
        tokio::select! {
            accepted = http1.accept() => {
                tokio::spawn(http1::serve(accepted?.0, state.clone()));
            }
            accepted = http2.accept() => {
                tokio::spawn(http2::serve(accepted?.0, state.clone()));
            }
        }
    }
}

/// Runs commands. The reply to each is its output, if any, and the line `done`.
async fn run_commands(mut control: BufReader<TcpStream>, state: &ServerState) -> io::Result<()> {
    loop {
        let mut line = String::new();
        if control.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let mut reply = String::new();
        match line.trim_end() {
            "hang up" => state.hang_up.send_replace(()),
            "close the ledger" => reply = account(state).await,
            word => {
                let weather = Weather::from_word(word).ok_or(io::ErrorKind::InvalidInput)?;
                state.dice.set_weather(weather);
            }
        }
        reply.push_str("done\n");
        control.write_all(reply.as_bytes()).await?;
    }
}

/// Formats the account: a line for each call, fault and count.
async fn account(state: &ServerState) -> String {
    use std::fmt::Write;

    let mut text = String::new();
    let closed = state.ledger.close().await;
    for (call, record) in closed.by_call {
        let (arrivals, effects, receipt) = (record.arrivals, record.effects, record.receipt);
        let _ = writeln!(text, "call {call} {arrivals} {effects} {receipt}");
    }
    for (fault, times) in state.dice.take_drawn() {
        let _ = writeln!(text, "drawn {fault:?} {times}");
    }
    let _ = writeln!(text, "replays {}", closed.replays);
    let _ = writeln!(text, "in_progress {}", closed.in_progress);
    let _ = writeln!(text, "garbled {}", closed.garbled);
    text
}
