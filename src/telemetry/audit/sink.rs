//! Where the writer writes lines: a file, standard output or syslog.

use std::io::{self, Write as _};

use super::AuditSinkSettings;
use super::chain::ChainEnd;
use super::rotation::RotatingFile;
use super::syslog::SyslogConnection;

/// An open sink.
#[derive(Debug)]
pub(super) enum AuditSink {
    File(RotatingFile),
    Stdout(PartialLine),
    Syslog(SyslogConnection),
}

/// A line for standard output, of which a part may have been written.
#[derive(Debug, Default)]
pub(super) struct PartialLine {
    written: usize,
}

impl AuditSink {
    pub(super) fn new(settings: &AuditSinkSettings) -> Self {
        match settings {
            AuditSinkSettings::File(path, rotation) => {
                Self::File(RotatingFile::new(path.clone(), *rotation))
            }
            AuditSinkSettings::Stdout => Self::Stdout(PartialLine::default()),
            AuditSinkSettings::Syslog(address) => {
                Self::Syslog(SyslogConnection::new(address.clone()))
            }
        }
    }

    /// The last record of the log, where it can be read, and whether an incomplete one was removed.
    pub(super) fn find_end(&mut self) -> io::Result<(ChainEnd, bool)> {
        match self {
            Self::File(file) => file.find_end(),
            Self::Stdout(_) | Self::Syslog(_) => Ok((ChainEnd::default(), false)),
        }
    }

    /// Writes a line with its end. After a failure the same line has to be tried again first.
    pub(super) fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.append_line(line),
            Self::Stdout(part) => part.write_rest(line),
            Self::Syslog(syslog) => syslog.send_record(line.strip_suffix(b"\n").unwrap_or(line)),
        }
    }

    /// Opens a file again.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Stdout(_) | Self::Syslog(_) => Ok(()),
        }
    }
}

impl PartialLine {
    fn write_rest(&mut self, line: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        while let Some(rest) = line.get(self.written..).filter(|rest| !rest.is_empty()) {
            match out.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => self.written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        out.flush()?;
        self.written = 0;
        Ok(())
    }
}
