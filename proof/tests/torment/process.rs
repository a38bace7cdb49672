//! The server process, as seen by the client.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::faults::Weather;
use crate::ledger::Record;

/// The environment variables of the server process: the address of its parent, and the seed of its faults.
pub(crate) const CONTROL: &str = "STEADY_TORMENT_CONTROL";
pub(crate) const SEED: &str = "STEADY_TORMENT_SEED";

/// The timeout of every step of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The addresses of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) http1: SocketAddr,
    pub(crate) http2: SocketAddr,
    /// Both versions of HTTP over TLS.
    pub(crate) balancer: SocketAddr,
    /// The proxy, which opens tunnels to the balancer.
    pub(crate) proxy: SocketAddr,
    /// An address without a listener.
    pub(crate) refusing: SocketAddr,
}

/// The server process. It ends on drop.
pub(crate) struct ServerProcess {
    child: Child,
    control: BufReader<TcpStream>,
    pub(crate) addresses: Addresses,
}

/// The counts of the server.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) by_call: BTreeMap<u32, Record>,
    pub(crate) drawn: BTreeMap<String, u64>,
    pub(crate) replays: u64,
    pub(crate) in_progress: u64,
    pub(crate) garbled: u64,
}

/// Waits for the connection of the server. Panics if it ends or takes too long.
fn accept(listener: &TcpListener, child: &mut Child) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let step = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / step.as_millis() {
        if let Ok((control, _)) = listener.accept() {
            control.set_nonblocking(false).unwrap();
            return control;
        }
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the server has ended: {status}");
        }
        std::thread::sleep(step);
    }
    panic!("the server did not start within {PATIENCE:?}");
}

impl ServerProcess {
    /// Starts this program again, to run the test of that name, which is the server.
    pub(crate) fn start(test: &str, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(CONTROL, listener.local_addr().unwrap().to_string())
            .env(SEED, seed.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let control = accept(&listener, &mut child);
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut control = BufReader::new(control);
        let mut line = String::new();
        control.read_line(&mut line).unwrap();
        let mut addresses = line.split_whitespace().map(|word| word.parse().unwrap());
        let mut address = || addresses.next().unwrap();
        let addresses = Addresses {
            http1: address(),
            http2: address(),
            balancer: address(),
            proxy: address(),
            refusing: address(),
        };
        Self {
            child,
            control,
            addresses,
        }
    }

    pub(crate) fn set_weather(&mut self, weather: Weather) {
        self.ask(weather.word(), |_| {});
    }

    /// Ends all idle connections.
    pub(crate) fn hang_up(&mut self) {
        self.ask("hang up", |_| {});
    }

    /// Returns the account since the last call.
    pub(crate) fn close_the_ledger(&mut self) -> Account {
        let mut account = Account::default();
        self.ask("close the ledger", |line| account.add(line));
        account
    }

    fn ask(&mut self, command: &str, mut each: impl FnMut(&str)) {
        let stream = self.control.get_mut();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.control.read_line(&mut line).unwrap();
            assert!(length > 0, "the server has ended");
            match line.trim_end() {
                "done" => return,
                line => each(line),
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Account {
    fn add(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().unwrap();
        match words[..] {
            ["call", call, arrivals, effects, receipt] => {
                let record = Record {
                    arrivals: arrivals.parse().unwrap(),
                    effects: effects.parse().unwrap(),
                    receipt: receipt.parse().unwrap(),
                };
                self.by_call.insert(call.parse().unwrap(), record);
            }
            ["drawn", fault, times] => {
                self.drawn.insert(fault.to_owned(), number(times));
            }
            ["replays", times] => self.replays = number(times),
            ["in_progress", times] => self.in_progress = number(times),
            ["garbled", times] => self.garbled = number(times),
            _ => panic!("{line}"),
        }
    }

    pub(crate) fn of(&self, call: u32) -> Record {
        self.by_call.get(&call).copied().unwrap_or_default()
    }

    pub(crate) fn sum(&self, of: impl Fn(&Record) -> u32) -> u64 {
        self.by_call
            .values()
            .map(|record| u64::from(of(record)))
            .sum()
    }
}
