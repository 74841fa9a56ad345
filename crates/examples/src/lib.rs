//! `trunkline example NAME`: two small MCP servers over stdio, so that a new gateway has servers
//! behind it, and two tools for benchmarks: a server with minimal cost ([`load`]) and a
//! pass-through proxy ([`proxy`]).
//!
//! They are independent of the gateway: `clock` speaks only the Legacy era and `notes` only the
//! Modern era, each strictly, and both share nothing with the gateway's protocol code except line
//! framing. So they do not mirror its mistakes, and the pair shows the work of joining the eras.
//! Both have a tool named `search`, on purpose.
//!
//! One loop ([`stdio`]) serves either of the two; [`legacy`] and [`modern`] handle the requests of
//! an era, [`clock`] and [`notes`] are the tools.

#![warn(unreachable_pub)]

mod proxy;
mod load;
mod clock;
mod legacy;
mod notes;
mod store;
mod modern;
mod tool;
mod stdio;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use clock::ClockTools;
use legacy::Legacy;
pub use load::LoadArgs;
use modern::Modern;
use notes::NotesTools;
pub use proxy::ProxyArgs;
use store::Store;

/// The example servers. `trunkline example` prints the doc lines.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Example {
    /// Tell and convert the time in any time zone (Legacy: up to 2025-11-25)
    Clock,
    /// Keep short notes (Modern: 2026-07-28)
    Notes {
        /// Store the notes in this file; without it they are lost when the process ends
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// A server for load tests: both eras, HTTP or stdio, any number of tools and bytes
    Load(LoadArgs),
    /// A bare HTTP pass-through proxy to one server
    Proxy(ProxyArgs),
}

/// Returns the names and descriptions, one per line.
pub fn list() -> String {
    let command = Example::augment_subcommands(clap::Command::new("example"));
    let lines = command.get_subcommands().map(|example| {
        let about = example.get_about().map(ToString::to_string).unwrap_or_default();
        format!("{:<8}{about}\n", example.get_name())
    });
    lines.collect()
}

impl Example {
    /// Serves on standard input and output until the input ends.
    pub fn serve(self) -> ExitCode {
        match self.try_serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("trunkline example: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn try_serve(self) -> io::Result<()> {
        match self {
            Self::Load(args) => return load::serve(&args),
            Self::Proxy(args) => return proxy::serve(&args),
            Self::Clock | Self::Notes { .. } => {}
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        let served = runtime.block_on(async {
            match self {
                Self::Clock => stdio::serve(Legacy::new(ClockTools::new()), input, output).await,
                Self::Notes { file } => {
                    let notes = NotesTools::new(Store::open(file)?);
                    stdio::serve(Modern::new(notes), input, output).await
                }
                Self::Load(_) | Self::Proxy(_) => Ok(()),
            }
        });
        // A read of standard input cannot be cancelled, and nothing depends on it.
        runtime.shutdown_background();
        served
    }
}

#[cfg(test)]
mod tests;
