//! The server, in a process of its own: what the client's process holds is then the client's alone.
//!
//! The client's process tells it over one more connection what to do, a line each, and it ends when
//! that does.

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

/// Longer than the client waits for an answer.
pub(crate) const SLOW_WORK: Duration = Duration::from_millis(450);
/// No run takes so long. It keeps a server that was left behind from staying.
const LONGEST_LIFE: Duration = Duration::from_secs(60 * 60);

/// What all connections share.
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) ledger: Ledger,
    /// Changes when connections that have nothing to do should end.
    pub(crate) hang_up: watch::Sender<()>,
}

/// Runs until the client's process closes its end.
pub(crate) async fn run(control: SocketAddr, seed: u64) -> io::Result<()> {
    let world = Arc::new(World {
        dice: Dice::seeded(seed),
        ledger: Ledger::default(),
        hang_up: watch::Sender::new(()),
    });
    let http1 = TcpListener::bind("127.0.0.1:0").await?;
    let http2 = TcpListener::bind("127.0.0.1:0").await?;
    let balancer = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = TcpListener::bind("127.0.0.1:0").await?;
    // Bound, so that nobody else has it, and not listening: connections are refused.
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
    let accepting = accept(http1, http2, &world);
    let in_front = front::accept(balancer, proxy, behind, &world);
    let obeying = tokio::time::timeout(LONGEST_LIFE, obey(control, &world));
    tokio::select! {
        ended = accepting => ended,
        ended = in_front => ended,
        ended = obeying => ended?,
    }
}

async fn accept(http1: TcpListener, http2: TcpListener, world: &Arc<World>) -> io::Result<()> {
    loop {
        tokio::select! {
            accepted = http1.accept() => {
                tokio::spawn(http1::serve(accepted?.0, world.clone()));
            }
            accepted = http2.accept() => {
                tokio::spawn(http2::serve(accepted?.0, world.clone()));
            }
        }
    }
}

/// Does what it is told, and answers each line with a word, or with what was done and a word.
async fn obey(mut control: BufReader<TcpStream>, world: &World) -> io::Result<()> {
    loop {
        let mut line = String::new();
        if control.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let mut said = String::new();
        match line.trim_end() {
            "hang up" => world.hang_up.send_replace(()),
            "close the ledger" => said = account(world).await,
            word => {
                let weather = Weather::from_word(word).ok_or(io::ErrorKind::InvalidInput)?;
                world.dice.set_weather(weather);
            }
        }
        said.push_str("done\n");
        control.write_all(said.as_bytes()).await?;
    }
}

/// One line for each call, fault and count.
async fn account(world: &World) -> String {
    use std::fmt::Write;

    let mut text = String::new();
    let closed = world.ledger.close().await;
    for (call, record) in closed.by_call {
        let (arrivals, effects, receipt) = (record.arrivals, record.effects, record.receipt);
        let _ = writeln!(text, "call {call} {arrivals} {effects} {receipt}");
    }
    for (fault, times) in world.dice.take_drawn() {
        let _ = writeln!(text, "drawn {fault:?} {times}");
    }
    let _ = writeln!(text, "replays {}", closed.replays);
    let _ = writeln!(text, "in_progress {}", closed.in_progress);
    let _ = writeln!(text, "garbled {}", closed.garbled);
    text
}
