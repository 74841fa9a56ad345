//! Turns of evaluations of all definitions, which take a thread for up to seconds: one at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// Makes one evaluation at a time.
#[derive(Debug)]
pub(crate) struct EvaluationTurns(Arc<Semaphore>);

impl Default for EvaluationTurns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl EvaluationTurns {
    /// Makes an evaluation on a thread of its own, once the earlier ones have ended.
    ///
    /// # Cancel safety
    /// An evaluation that has begun cannot be stopped: it keeps its turn until it ends.
    pub(crate) async fn evaluate<T: Send + 'static>(
        &self,
        evaluation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // The semaphore is never closed.
        let turn = Arc::clone(&self.0).acquire_owned().await.ok();
        spawn_blocking(move || {
            let evaluated = evaluation();
            drop(turn);
            evaluated
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_evaluation_whose_client_has_left_keeps_its_turn_until_it_ends() {
        let turns = EvaluationTurns::default();
        let (end, ended) = sync_channel::<()>(1);
        let first = turns.evaluate(move || ended.recv());
        assert!(first.boxed().now_or_never().is_none(), "it has begun, and its client leaves");
        assert_eq!(turns.0.available_permits(), 0, "it has the turn");
        let mut second = Box::pin(turns.evaluate(|| 2));
        assert!((&mut second).now_or_never().is_none());
        end.send(()).unwrap();
        assert_eq!(second.await.unwrap(), 2);
        assert_eq!(turns.0.available_permits(), 1);
    }
}
