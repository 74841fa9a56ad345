//! Timers that rarely fire.
//!
//! A call has time limits that it almost never reaches, and a runtime's timer costs a thousand
//! instructions to set and to cancel. On a thread that serves clients, an [`Alarm`] is only an
//! entry on the thread's [`Board`], which is checked every [`LOOK`]; an alarm that is due soon
//! becomes a real timer and fires as punctually as any. On other threads it is a timer from the
//! start.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use slab::Slab;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// A future that is ready at a point in time.
#[derive(Debug)]
pub struct Alarm {
    at: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not polled yet; `soon` if it is due within [`SOON`].
    Unset {
        soon: bool,
    },
    Hung(Hook),
    Timer(Pin<Box<Sleep>>),
}

impl Alarm {
    /// An alarm that is due after this duration.
    pub fn after(after: Duration) -> Self {
        Self { at: Instant::now() + after, state: State::Unset { soon: after <= SOON } }
    }

    /// Changes the time at which the alarm is due.
    pub fn set(&mut self, at: Instant) {
        let soon = at.saturating_duration_since(Instant::now()) <= SOON;
        *self = Self { at, state: State::Unset { soon } };
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let at = self.at;
            self.state = match &mut self.state {
                State::Timer(timer) => return timer.as_mut().poll(cx),
                State::Hung(hook) if !hook.is_due_soon(cx.waker()) => return Poll::Pending,
                State::Unset { soon: false } => match Board::of_this_thread() {
                    Some(board) => {
                        self.state = State::Hung(Hook::new(board, at, cx.waker()));
                        return Poll::Pending;
                    }
                    None => State::Timer(Box::pin(sleep_until(at))),
                },
                State::Hung(_) | State::Unset { soon: true } => {
                    State::Timer(Box::pin(sleep_until(at)))
                }
            };
        }
    }
}

/// The pending alarms of one thread.
#[derive(Debug, Default)]
struct Board(Mutex<Slab<Hung>>);

#[derive(Debug)]
struct Hung {
    at: Instant,
    waker: Waker,
    soon: bool,
}

thread_local! {
    static BOARD: RefCell<Option<Arc<Board>>> = const { RefCell::new(None) };
}

impl Board {
    fn of_this_thread() -> Option<Arc<Self>> {
        BOARD.with(|board| board.borrow().clone())
    }

    fn places(&self) -> MutexGuard<'_, Slab<Hung>> {
        self.0.lock()
    }

    /// Wakes the alarms that are due soon.
    fn look(&self) {
        let soon = Instant::now() + SOON;
        let mut wakers = Vec::new();
        for (_, hung) in self.places().iter_mut() {
            if !hung.soon && hung.at <= soon {
                hung.soon = true;
                wakers.push(hung.waker.clone());
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// An alarm's entry on a board.
#[derive(Debug)]
struct Hook {
    board: Arc<Board>,
    place: usize,
}

impl Hook {
    fn new(board: Arc<Board>, at: Instant, waker: &Waker) -> Self {
        let hung = Hung { at, waker: waker.clone(), soon: false };
        let place = board.places().insert(hung);
        Self { board, place }
    }

    /// Whether the alarm is due soon; if not, `waker` is woken when it is.
    fn is_due_soon(&self, waker: &Waker) -> bool {
        let mut places = self.board.places();
        let Some(hung) = places.get_mut(self.place) else { return true };
        if !hung.soon {
            hung.waker.clone_from(waker);
        }
        hung.soon
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let hung = self.board.places().try_remove(self.place);
        // Dropped outside of the lock, because waking or dropping a task may set an alarm.
        drop(hung);
    }
}

/// Checks the alarms of its thread until it is dropped.
///
/// It wakes the thread even if there are no alarms: a timer that becomes the runtime's earliest
/// makes the runtime write to its own wakeup descriptor, at the cost of two system calls, and
/// hardly any timer is earlier than this one.
pub async fn watch_alarms() {
    let _gone = Gone;
    let board = Arc::new(Board::default());
    BOARD.with(|place| place.replace(Some(Arc::clone(&board))));
    loop {
        sleep(LOOK).await;
        board.look();
    }
}

/// Removes the board from the thread when dropped.
struct Gone;

impl Drop for Gone {
    fn drop(&mut self) {
        let board = BOARD.with(RefCell::take);
        // Tasks with alarms on the board need real timers now.
        let all = board.map(|board| std::mem::take(&mut *board.places()));
        for (_, hung) in all.into_iter().flatten() {
            hung.waker.wake();
        }
    }
}

/// How often a board is checked.
const LOOK: Duration = Duration::from_millis(900);
/// An alarm that is due within this time becomes a timer: two checks, so that one may be late.
const SOON: Duration = Duration::from_millis(1800);

#[cfg(test)]
mod tests {
    use super::*;

    fn hung() -> usize {
        let board = Board::of_this_thread();
        board.map_or(0, |board| board.places().len())
    }

    #[tokio::test(start_paused = true)]
    async fn it_fires_in_time_whether_somebody_looks_or_not() {
        let watched = tokio::spawn(watch_alarms());
        for rounds in 0..2 {
            tokio::task::yield_now().await;
            for wait in [0, 1, 1799, 1801, 5000, 59_999] {
                let (begun, wait) = (Instant::now(), Duration::from_millis(wait));
                Alarm::after(wait).await;
                assert_eq!(begun.elapsed(), wait, "{rounds}");
            }
            watched.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_far_away_hangs_on_the_board_until_it_is_dropped() {
        let watched = tokio::spawn(watch_alarms());
        tokio::task::yield_now().await;
        let mut alarms: Vec<_> = (0..3).map(|_| Alarm::after(Duration::from_mins(1))).collect();
        for alarm in &mut alarms {
            assert!(futures_util::poll!(alarm).is_pending());
        }
        assert_eq!(hung(), 3);
        alarms.remove(1);
        assert_eq!(hung(), 2);
        let mut another = Alarm::after(Duration::from_mins(1));
        assert!(futures_util::poll!(&mut another).is_pending());
        assert_eq!(hung(), 3);
        // An alarm that is set again returns to the board; without a board it uses a timer.
        another.set(Instant::now() + Duration::from_mins(2));
        assert_eq!(hung(), 2);
        let begun = Instant::now();
        assert!(futures_util::poll!(&mut another).is_pending());
        watched.abort();
        another.await;
        assert_eq!(begun.elapsed(), Duration::from_mins(2));
    }
}
