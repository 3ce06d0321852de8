//! Loads from the Agent Registry that are on their way: one a release, whoever waits for it.
//!
//! The load goes on when the one who asked first has stopped waiting, and it backs off while the registry or policy do not
//! answer; who asks again meanwhile waits for the same one.

use super::Loaded;
use grain_contract::{Code, Rejection, TenantId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Loads on their way at once.
const LOADING_MAX: usize = 256;
/// Tries of one load before it is given up; the next caller begins anew.
const TRIES_MAX: u32 = 8;
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

type Key = (TenantId, String);
type Outcome = Option<Result<Loaded, Rejection>>;

#[derive(Clone, Default)]
pub struct Loading {
    under_way: Arc<Mutex<HashMap<Key, watch::Receiver<Outcome>>>>,
}

impl Loading {
    /// Waits for the load of this release, and starts it with `try_once` if there is none.
    pub async fn join<F, Fut>(&self, key: Key, deadline: Instant, try_once: F) -> Result<Loaded, Rejection>
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Loaded, Rejection>> + Send,
    {
        let mut outcome = self.find_or_start(key, try_once)?;
        let done = async {
            match outcome.wait_for(Option::is_some).await {
                Ok(value) => value.clone(),
                Err(_) => None,
            }
        };
        match tokio::time::timeout_at(deadline, done).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(Rejection::new(Code::Unavailable, "Expected the load to end, but it was broken off.")),
            Err(_) => Err(Rejection::new(
                Code::Unavailable,
                "Expected the release within the deadline, but it is still being loaded: ask again.",
            )),
        }
    }

    fn find_or_start<F, Fut>(&self, key: Key, try_once: F) -> Result<watch::Receiver<Outcome>, Rejection>
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Loaded, Rejection>> + Send,
    {
        let mut under_way = self.under_way.lock();
        if let Some(outcome) = under_way.get(&key) {
            return Ok(outcome.clone());
        }
        if under_way.len() >= LOADING_MAX {
            let message = format!("Expected fewer than {LOADING_MAX} loads on their way, but there are as many.");
            return Err(Rejection::new(Code::Overloaded, message));
        }
        let (tell, outcome) = watch::channel(None);
        under_way.insert(key.clone(), outcome.clone());
        let all = Arc::clone(&self.under_way);
        tokio::spawn(async move {
            let result = try_often(try_once).await;
            all.lock().remove(&key);
            tell.send_replace(Some(result));
        });
        Ok(outcome)
    }
}

async fn try_often<F, Fut>(try_once: F) -> Result<Loaded, Rejection>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Loaded, Rejection>>,
{
    let mut wait = BACKOFF_FIRST;
    let mut tries = 1;
    loop {
        match try_once().await {
            Err(refusal) if refusal.code.is_retryable() && tries < TRIES_MAX => {
                tracing::warn!(%refusal, tries, "a release could not be loaded yet");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(BACKOFF_MAX);
                tries += 1;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn key() -> Key {
        ("acme".into(), "a@1".to_owned())
    }

    /// [D6] Retries back off, and one release is loaded once however many ask.
    #[tokio::test(start_paused = true)]
    async fn callers_share_one_load_that_backs_off() {
        let loading = Loading::default();
        let tries = Arc::new(AtomicU32::new(0));
        let once = {
            let tries = Arc::clone(&tries);
            move || {
                let n = tries.fetch_add(1, Ordering::Relaxed);
                async move {
                    if n < 3 {
                        return Err(Rejection::new(Code::Unavailable, "down"));
                    }
                    Ok(Loaded::default())
                }
            }
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let begun = Instant::now();
        let (a, b) =
            tokio::join!(loading.join(key(), deadline, once.clone()), loading.join(key(), deadline, once.clone()));
        assert!(a.is_ok() && b.is_ok());
        assert_eq!(tries.load(Ordering::Relaxed), 4);
        assert_eq!(begun.elapsed(), Duration::from_millis(100 + 200 + 400));
        assert!(loading.under_way.lock().is_empty());
    }

    /// [D6] A final refusal is not repeated, and a caller's deadline does not break the load off.
    #[tokio::test(start_paused = true)]
    async fn a_final_refusal_ends_it_and_a_deadline_does_not() {
        let loading = Loading::default();
        let denied = || async { Err(Rejection::new(Code::Denied, "policy")) };
        let deadline = Instant::now() + Duration::from_secs(1);
        assert_eq!(loading.join(key(), deadline, denied).await.err().map(|r| r.code), Some(Code::Denied));

        let slow = || async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(Loaded::default())
        };
        let first = loading.join(key(), Instant::now() + Duration::from_secs(1), slow).await;
        assert_eq!(first.err().map(|r| r.code), Some(Code::Unavailable));
        let never = || async { Err(Rejection::new(Code::Internal, "a second load was started")) };
        assert!(loading.join(key(), Instant::now() + Duration::from_secs(60), never).await.is_ok());
    }
}
