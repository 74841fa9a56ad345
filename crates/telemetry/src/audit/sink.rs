//! Destinations of the writer: a file, standard output or syslog.

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

/// Lines with their line ends, at least one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) text: &'a [u8],
    /// Offset of the first line in `text`.
    pub(super) begin: usize,
    /// Offset of each line's end in `text`.
    pub(super) ends: &'a [usize],
}

impl<'a> Lines<'a> {
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the text of the first lines.
    pub(super) fn first(&self, lines: usize) -> &'a [u8] {
        let end = lines.checked_sub(1).and_then(|last| self.ends.get(last).copied());
        self.text.get(self.begin..end.unwrap_or(self.begin)).unwrap_or_default()
    }

    /// Counts the first lines that fit into this many bytes.
    pub(super) fn count_within(&self, bytes: u64) -> usize {
        self.ends.partition_point(|end| (end - self.begin) as u64 <= bytes)
    }
}

/// Lines for standard output, which may be partly written.
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

    /// Returns the last record of the log, where it can be read, and true if an incomplete record
    /// was removed.
    pub(super) fn find_end(&mut self) -> io::Result<(ChainEnd, bool)> {
        match self {
            Self::File(file) => file.find_end(),
            Self::Stdout(_) | Self::Syslog(_) => Ok((ChainEnd::default(), false)),
        }
    }

    /// Writes the first of these lines, at least one, and returns their number. After a failure the
    /// caller retries the same lines first.
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

    /// Opens the file, or connects to the receiver.
    pub(super) fn open(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.open(),
            Self::Syslog(syslog) => syslog.open(),
            Self::Stdout(_) => Ok(()),
        }
    }

    /// Returns a fault that does not keep records from being written.
    pub(super) fn lasting_fault(&self) -> Option<&str> {
        match self {
            Self::File(file) => file.rotation_fault(),
            Self::Stdout(_) | Self::Syslog(_) => None,
        }
    }

    /// Closes a file, so that the path is opened again.
    pub(super) fn close_file(&mut self) {
        if let Self::File(file) = self {
            file.close();
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
