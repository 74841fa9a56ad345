//! Translates `[events]` into the settings of the delivery, and starts the program that reads events.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::AsyncWrite;
use tokio::process::ChildStdin;
use tokio::task::spawn_blocking;

use crate::call::ServerName;
use crate::child::{Child, ChildSpec, Guardian};
use crate::cli::programs::{program_exists, program_folders};
use crate::config::{Config, EventsConfig};
use crate::telemetry::events::{
    EventDelivery, EventProgram, EventReceiver, EventSettings, RunningProgram, SigningKey,
};
use crate::telemetry::metrics::Metrics;

/// Starts the delivery of a configuration's events.
pub(super) async fn start_events(
    config: &Config,
    guardian: &Guardian,
    metrics: &Metrics,
) -> EventDelivery {
    let settings = event_settings(&config.events, guardian);
    let folder = config.events.queue_dir.clone();
    EventDelivery::start(settings, folder, metrics.event_counts().clone()).await
}

/// Builds the settings of the delivery; `None` without a receiver.
pub(super) fn event_settings(config: &EventsConfig, guardian: &Guardian) -> Option<EventSettings> {
    Some(EventSettings {
        types: config.chosen_types().collect(),
        source: config.source.clone(),
        receiver: event_receiver(config, guardian)?,
        queue_size: config.queue_size,
        retry_for: config.retry_for,
        timeout: config.timeout,
    })
}

fn event_receiver(config: &EventsConfig, guardian: &Guardian) -> Option<EventReceiver> {
    if let Some(url) = &config.url {
        // The configuration has checked the key.
        let key = SigningKey::parse(config.secret.as_ref()?.expose()).ok()?;
        return Some(EventReceiver::Webhook { url: url.clone(), key });
    }
    if let Some(program) = &config.command {
        let mut spec = ChildSpec::new(program);
        spec.args.clone_from(&config.args);
        spec.stop_timeout = STOP_TIMEOUT;
        let reader = ReaderProcess { spec, guardian: guardian.clone() };
        return Some(EventReceiver::Program(Arc::new(reader)));
    }
    config.file.clone().map(EventReceiver::File)
}

/// The program of `events.command`: a child process like those of servers.
#[derive(Debug)]
struct ReaderProcess {
    spec: ChildSpec,
    guardian: Guardian,
}

/// The program while it runs.
struct StartedReader {
    child: Child,
    input: ChildStdin,
}

#[async_trait]
impl EventProgram for ReaderProcess {
    fn path(&self) -> String {
        self.spec.program.clone()
    }

    fn check(&self) -> io::Result<()> {
        if program_exists(&self.spec.program, &program_folders()) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "there is no such program"))
    }

    async fn start(&self) -> io::Result<Box<dyn RunningProgram>> {
        let (spec, guardian) = (self.spec.clone(), self.guardian.clone());
        let spawned = spawn_blocking(move || {
            let name = ServerName::new(LOG_NAME).map_err(io::Error::other)?;
            Child::spawn(&name, &spec, &guardian).map_err(io::Error::other)
        });
        let (child, input, mut output) = spawned.await.map_err(io::Error::other)??;
        // Its output is ignored, and it must not block on a missing reader.
        tokio::spawn(async move { tokio::io::copy(&mut output, &mut tokio::io::sink()).await });
        Ok(Box::new(StartedReader { child, input }))
    }
}

#[async_trait]
impl RunningProgram for StartedReader {
    fn input(&mut self) -> &mut (dyn AsyncWrite + Send + Sync + Unpin) {
        &mut self.input
    }

    async fn stop(self: Box<Self>) {
        drop(self.input);
        self.child.stop().await;
    }
}

/// Name of the program in the log, for lines of its standard error.
const LOG_NAME: &str = "events";
/// Time limit for each step of ending the program.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
