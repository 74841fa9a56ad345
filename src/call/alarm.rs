//! Timers for what seldom lasts.
//!
//! A call has time limits that it almost never comes to, and a runtime's timer
//! costs a thousand instructions to set and to take back. On a thread that
//! serves clients an [`Alarm`] only hangs on the thread's [`Board`], which is
//! looked at every [`LOOK`]; one that is due soon becomes a timer, and fires as
//! punctually as any. Elsewhere it is a timer from the start.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use slab::Slab;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Is ready at a point in time.
#[derive(Debug)]
pub struct Alarm {
    at: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nobody waits yet; whether it is due soon.
    Unset {
        soon: bool,
    },
    Hung(Hook),
    Timer(Pin<Box<Sleep>>),
}

impl Alarm {
    /// One that is due `after` so much time.
    pub fn after(after: Duration) -> Self {
        Self { at: Instant::now() + after, state: State::Unset { soon: after <= SOON } }
    }

    /// Makes it due at another time.
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

/// Where the alarms of one thread hang.
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

    /// Wakes those that are due soon.
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

/// An alarm's place on a board.
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

    /// Whether it is; if not, `waker` will hear when it is.
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
        // Outside of the lock: whoever is woken or dropped may hang something.
        drop(hung);
    }
}

/// Looks after the alarms of the thread that it runs on, until it is dropped.
///
/// It wakes its thread even if there are none: a timer that is due before all
/// others makes its runtime write to itself and look again, which costs two
/// system calls, and hardly any is while this one is due sooner.
pub async fn watch_alarms() {
    let _gone = Gone;
    let board = Arc::new(Board::default());
    BOARD.with(|place| place.replace(Some(Arc::clone(&board))));
    loop {
        sleep(LOOK).await;
        board.look();
    }
}

/// Has the thread look after no alarms any more.
struct Gone;

impl Drop for Gone {
    fn drop(&mut self) {
        let board = BOARD.with(RefCell::take);
        // Whoever hangs there has to look after itself.
        let all = board.map(|board| std::mem::take(&mut *board.places()));
        for (_, hung) in all.into_iter().flatten() {
            hung.waker.wake();
        }
    }
}

/// How often a board is looked at.
const LOOK: Duration = Duration::from_millis(900);
/// What is due within this time becomes a timer: two looks, so that one may be late.
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
        // One that is put off hangs there anew, and one without a board goes on by itself.
        another.set(Instant::now() + Duration::from_mins(2));
        assert_eq!(hung(), 2);
        let begun = Instant::now();
        assert!(futures_util::poll!(&mut another).is_pending());
        watched.abort();
        another.await;
        assert_eq!(begun.elapsed(), Duration::from_mins(2));
    }
}
