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

/// Lines with their ends, at least one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) text: &'a [u8],
    /// Where the first line begins in `text`.
    pub(super) begin: usize,
    /// Where each line ends in `text`.
    pub(super) ends: &'a [usize],
}

impl<'a> Lines<'a> {
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The text of the first lines.
    pub(super) fn first(&self, lines: usize) -> &'a [u8] {
        let end = lines.checked_sub(1).and_then(|last| self.ends.get(last).copied());
        self.text.get(self.begin..end.unwrap_or(self.begin)).unwrap_or_default()
    }

    /// How many of the first lines have at most so many bytes.
    pub(super) fn count_within(&self, bytes: u64) -> usize {
        self.ends.partition_point(|end| (end - self.begin) as u64 <= bytes)
    }
}

/// Lines for standard output, of which a part may have been written.
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

    /// Writes the first of these lines, one or more, and returns how many. After a failure the same lines
    /// have to be tried again first.
    pub(super) fn write_lines(&mut self, lines: Lines<'_>) -> io::Result<usize> {
        match self {
            Self::File(file) => file.append_lines(lines),
            Self::Stdout(part) => {
                part.write_rest(lines.first(lines.count())).map(|()| lines.count())
            }
            Self::Syslog(syslog) => {
                let line = lines.first(1);
                syslog.send_record(line.strip_suffix(b"\n").unwrap_or(line)).map(|()| 1)
            }
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
    fn write_rest(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        while let Some(rest) = lines.get(self.written..).filter(|rest| !rest.is_empty()) {
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
