//! The view on a terminal: samples, keys and signals, one frame after the other.
//!
//! Samples are taken by a thread, so that a gateway that does not answer never delays a key. The
//! terminal is restored when the view ends, on a signal and on a panic.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{SignalKind, signal};

use super::sample::{ActivitySample, MeasuredActivity};
use super::sampler::ActivitySampler;
use super::screen::{TopPalette, TopScreen};
use super::state::{KeyEffect, TopState};
use crate::cli::report_error;

/// News for the view.
enum TopNews {
    /// A sample, or the reason that there is none.
    Sample(Result<Box<ActivitySample>, String>),
    /// A signal that ends the program.
    Signal(u8),
}

/// Restores the terminal when it is dropped.
struct RestoredTerminal;

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the view until its user or a signal ends it.
pub(super) fn show(
    sampler: ActivitySampler,
    first: ActivitySample,
    state: TopState,
    palette: TopPalette,
) -> ExitCode {
    let (news, incoming) = sync_channel(1);
    // Before the terminal is changed: a signal in between ends the program as usual.
    if let Err(error) = watch_signals(news.clone()) {
        return report_error(&error);
    }
    // The thread ends once nobody waits for its samples.
    let (closing, closed) = sync_channel::<()>(1);
    thread::spawn(move || take_samples(sampler, &news, &closed));
    let ended = run(&incoming, first, state, palette);
    drop(closing);
    match ended {
        Ok(code) => code,
        Err(error) => report_error(&error),
    }
}

fn run(
    incoming: &Receiver<TopNews>,
    first: ActivitySample,
    mut state: TopState,
    palette: TopPalette,
) -> io::Result<ExitCode> {
    let mut terminal = ratatui::try_init()?;
    let _restored = RestoredTerminal;
    let mut measured = Some(MeasuredActivity::of(first, None));
    let mut fault: Option<String> = None;
    loop {
        let fault_text = fault.as_deref();
        let screen =
            TopScreen { measured: measured.as_ref(), state: &state, fault: fault_text, palette };
        terminal.draw(|frame| frame.render_widget(&screen, frame.area()))?;
        if event::poll(KEY_PATIENCE)?
            && let Event::Key(key) = event::read()?
            && state.press(key, measured.as_ref()) == KeyEffect::Quit
        {
            return Ok(ExitCode::SUCCESS);
        }
        match incoming.try_recv() {
            Ok(TopNews::Signal(number)) => return Ok(ExitCode::from(SIGNAL_EXIT + number)),
            Ok(TopNews::Sample(Ok(sample))) => {
                let before = measured.as_ref().map(|measured| &measured.sample);
                measured = Some(MeasuredActivity::of(*sample, before));
                fault = None;
            }
            Ok(TopNews::Sample(Err(reason))) => fault = Some(format!("trying again: {reason}")),
            Err(_) => {}
        }
    }
}

/// Takes a sample in each interval until the view has ended.
fn take_samples(mut sampler: ActivitySampler, news: &SyncSender<TopNews>, closed: &Receiver<()>) {
    while closed.recv_timeout(sampler.interval()) == Err(RecvTimeoutError::Timeout) {
        let sample = sampler.take().map(Box::new).map_err(|error| error.to_string());
        if news.send(TopNews::Sample(sample)).is_err() {
            return;
        }
    }
}

/// Reports the signals that end programs.
fn watch_signals(news: SyncSender<TopNews>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handles = {
        let _entered = runtime.enter();
        [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()]
            .map(|kind| signal(kind).map(|stream| (kind, stream)))
    };
    let [terminate, hangup, interrupt, quit] = handles;
    let (mut terminate, mut hangup) = (terminate?, hangup?);
    let (mut interrupt, mut quit) = (interrupt?, quit?);
    thread::spawn(move || {
        let kind = runtime.block_on(async {
            tokio::select! {
                _ = terminate.1.recv() => terminate.0,
                _ = hangup.1.recv() => hangup.0,
                _ = interrupt.1.recv() => interrupt.0,
                _ = quit.1.recv() => quit.0,
            }
        });
        let number = u8::try_from(kind.as_raw_value()).unwrap_or_default();
        let _ = news.send(TopNews::Signal(number));
    });
    Ok(())
}

/// Time that a frame waits for a key before news are looked at.
const KEY_PATIENCE: Duration = Duration::from_millis(100);
/// Exit code of a program that a signal has ended, without the number of the signal.
const SIGNAL_EXIT: u8 = 128;
