//! Whoever does the work of one queue.

use super::work::{Outcome, Work};
use futures::future::BoxFuture;

/// Does attempts. An async closure `|work| async { … }` is one.
pub trait Handler: Send + Sync + 'static {
    /// Does one attempt. Dropping the future must stop the work.
    fn handle(&self, work: Work) -> BoxFuture<'static, Outcome>;

    /// Whether an attempt that was begun may be begun again after the worker died in the middle of it: true if doing it twice
    /// with the same idempotency key is the same as doing it once. Attempts of class `read` may always be.
    fn is_idempotent(&self) -> bool {
        false
    }
}

impl<F, Fut> Handler for F
where
    F: Fn(Work) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    fn handle(&self, work: Work) -> BoxFuture<'static, Outcome> {
        Box::pin(self(work))
    }
}
