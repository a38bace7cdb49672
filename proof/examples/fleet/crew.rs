//! The worker processes, as seen by their parent.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::worker::{END, Orders, Report};

/// How long a worker may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);

/// The worker processes. They end on drop, or with this process.
pub(crate) struct Crew {
    processes: Vec<Child>,
    /// Indexed by the number of the worker.
    controls: Vec<BufReader<TcpStream>>,
}

impl Crew {
    /// Starts workers with a command that runs [`work`](crate::worker::work), and waits until all have connected.
    pub(crate) fn start(
        count: usize,
        command: impl Fn(SocketAddr, usize) -> io::Result<Command>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let mut crew = Self {
            processes: Vec::new(),
            controls: Vec::new(),
        };
        for number in 0..count {
            let mut command = command(address, number)?;
            command.stdin(Stdio::null()).stdout(Stdio::null());
            crew.processes.push(command.spawn()?);
        }
        listener.set_nonblocking(true)?;
        let mut came = Vec::new();
        for _ in 0..count {
            let mut control = BufReader::new(crew.accept(&listener)?);
            let mut line = String::new();
            control.read_line(&mut line)?;
            came.push((line.trim_end().parse::<usize>()?, control));
        }
        came.sort_by_key(|(number, _)| *number);
        crew.controls = came.into_iter().map(|(_, control)| control).collect();
        Ok(crew)
    }

    pub(crate) fn begin(&mut self, orders: &Orders) -> io::Result<()> {
        self.tell(&orders.to_string())
    }

    /// Ignores all earlier lags.
    #[allow(dead_code, reason = "the example does not use it")]
    pub(crate) fn mark(&mut self) -> io::Result<()> {
        self.tell("mark")
    }

    /// Stops new calls, and waits for those in progress.
    pub(crate) fn stop(mut self) -> anyhow::Result<Vec<Report>> {
        self.tell("stop")?;
        let mut reports = Vec::new();
        for control in &mut self.controls {
            let mut report = Report::default();
            let mut line = String::new();
            loop {
                line.clear();
                anyhow::ensure!(
                    control.read_line(&mut line)? > 0,
                    "a worker has ended early"
                );
                match line.trim_end() {
                    END => break,
                    line => report.read(line)?,
                }
            }
            reports.push(report);
        }
        Ok(reports)
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        for control in &mut self.controls {
            writeln!(control.get_mut(), "{line}")?;
        }
        Ok(())
    }

    /// Waits for the connection of a worker. Fails if a worker ends or takes too long.
    fn accept(&mut self, listener: &TcpListener) -> anyhow::Result<TcpStream> {
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            if let Ok((control, _)) = listener.accept() {
                control.set_nonblocking(false)?;
                control.set_nodelay(true)?;
                control.set_read_timeout(Some(PATIENCE))?;
                return Ok(control);
            }
            for process in &mut self.processes {
                if let Some(status) = process.try_wait()? {
                    anyhow::bail!("a worker has ended: {status}");
                }
            }
            thread::sleep(STEP);
        }
        anyhow::bail!("a worker did not come up in {PATIENCE:?}")
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
