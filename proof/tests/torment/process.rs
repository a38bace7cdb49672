//! The server's process, as the client's process sees it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::faults::Weather;
use crate::ledger::Record;

/// Where the server's process finds the one that started it, and what it draws faults from.
pub(crate) const CONTROL: &str = "STEADY_TORMENT_CONTROL";
pub(crate) const SEED: &str = "STEADY_TORMENT_SEED";

/// How long the server may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where to send requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) http1: SocketAddr,
    pub(crate) http2: SocketAddr,
    /// Both versions of HTTP over TLS.
    pub(crate) balancer: SocketAddr,
    /// It opens tunnels to the balancer.
    pub(crate) proxy: SocketAddr,
    /// Nobody listens there.
    pub(crate) refusing: SocketAddr,
}

/// It ends when this is dropped.
pub(crate) struct ServerProcess {
    child: Child,
    control: BufReader<TcpStream>,
    pub(crate) addresses: Addresses,
}

/// What the server has counted.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) by_call: BTreeMap<u32, Record>,
    pub(crate) drawn: BTreeMap<String, u64>,
    pub(crate) replays: u64,
    pub(crate) in_progress: u64,
    pub(crate) garbled: u64,
}

/// Unless it has ended, or does not come.
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
    panic!("the server did not come up in {PATIENCE:?}");
}

impl ServerProcess {
    /// This same program, started again to run the test of that name, which is the server.
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

    /// Ends all connections that have nothing to do.
    pub(crate) fn hang_up(&mut self) {
        self.ask("hang up", |_| {});
    }

    /// What was done since this was last asked.
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
