//! A program that reads events from its standard input.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::task::spawn_blocking;

use super::sink::{DeliveryError, EventProgram, RunningProgram};

/// The standard input of a program. The program is started with the first event, and again after it
/// has exited.
pub(super) struct ProgramInput {
    program: Arc<dyn EventProgram>,
    running: Option<Box<dyn RunningProgram>>,
}

impl ProgramInput {
    pub(super) fn new(program: Arc<dyn EventProgram>) -> Self {
        Self { program, running: None }
    }

    /// Checks that the program exists.
    pub(super) async fn check(&self) -> Result<(), DeliveryError> {
        let program = Arc::clone(&self.program);
        let checked = spawn_blocking(move || program.check()).await;
        checked.map_err(io::Error::other)?.map_err(DeliveryError::Program)
    }

    pub(super) async fn write_line(&mut self, line: &[u8]) -> Result<(), DeliveryError> {
        let running = match &mut self.running {
            Some(running) => running,
            none => none.insert(self.program.start().await.map_err(DeliveryError::Program)?),
        };
        let input = running.input();
        input.write_all(&[line, b"\n"].concat()).await?;
        Ok(input.flush().await?)
    }

    pub(super) fn kill(&mut self) {
        self.running = None;
    }

    pub(super) async fn stop(self) {
        if let Some(running) = self.running {
            running.stop().await;
        }
    }
}
