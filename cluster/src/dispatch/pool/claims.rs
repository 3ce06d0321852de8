//! Who has which attempt, by lease.
//!
//! An attempt is leased once, but until its grain has said to whom, several may say that they have it: a worker that comes back
//! with what was taken from it long ago, and the one that has it now. So all claims stand side by side, each known by its
//! token, until they are confirmed or refused one by one.

use super::{Guest, Leased};
use grain_contract::Lease;
use std::collections::HashMap;
use uuid::Uuid;

pub(super) trait Claim {
    fn lease(&self) -> &Lease;
    /// Of its worker, as far as it is known; greater is newer.
    fn session(&self) -> u64;
}

impl Claim for Leased {
    fn lease(&self) -> &Lease {
        &self.lease
    }
    fn session(&self) -> u64 {
        self.session
    }
}

impl Claim for Guest {
    fn lease(&self) -> &Lease {
        &self.lease
    }
    fn session(&self) -> u64 {
        self.session
    }
}

/// An attempt under one token.
pub(super) type Key = (Uuid, [u8; 16]);

pub(super) struct Claims<T> {
    by_attempt: HashMap<Uuid, Vec<T>>,
}

impl<T> Default for Claims<T> {
    fn default() -> Self {
        Self { by_attempt: HashMap::new() }
    }
}

impl<T: Claim> Claims<T> {
    pub(super) fn len(&self) -> usize {
        self.by_attempt.values().map(Vec::len).sum()
    }

    pub(super) fn all_of(&self, attempt: Uuid) -> &[T] {
        self.by_attempt.get(&attempt).map_or(&[], Vec::as_slice)
    }

    pub(super) fn get(&self, (attempt, token): Key) -> Option<&T> {
        self.all_of(attempt).iter().find(|claim| claim.lease().token == token)
    }

    pub(super) fn get_mut(&mut self, (attempt, token): Key) -> Option<&mut T> {
        self.by_attempt.get_mut(&attempt)?.iter_mut().find(|claim| claim.lease().token == token)
    }

    /// The newest of this worker's.
    pub(super) fn of_worker(&mut self, attempt: Uuid, worker: &str) -> Option<&mut T> {
        let claims = self.by_attempt.get_mut(&attempt)?.iter_mut();
        claims.filter(|claim| claim.lease().worker == worker).max_by_key(|claim| claim.session())
    }

    /// Instead of the one under the same token, if there is one.
    pub(super) fn put(&mut self, attempt: Uuid, claim: T) -> Option<T> {
        let before = self.remove((attempt, claim.lease().token));
        self.by_attempt.entry(attempt).or_default().push(claim);
        before
    }

    pub(super) fn remove(&mut self, (attempt, token): Key) -> Option<T> {
        let claims = self.by_attempt.get_mut(&attempt)?;
        let at = claims.iter().position(|claim| claim.lease().token == token)?;
        let claim = claims.swap_remove(at);
        if claims.is_empty() {
            self.by_attempt.remove(&attempt);
        }
        Some(claim)
    }

    pub(super) fn keys_of(&self, attempt: Uuid) -> Vec<Key> {
        self.all_of(attempt).iter().map(|claim| (attempt, claim.lease().token)).collect()
    }

    pub(super) fn keys(&self, wanted: impl Fn(&T) -> bool) -> Vec<Key> {
        self.iter().filter(|(_, claim)| wanted(claim)).map(|(id, claim)| (id, claim.lease().token)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Uuid, &T)> {
        self.by_attempt.iter().flat_map(|(attempt, claims)| claims.iter().map(|claim| (*attempt, claim)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.by_attempt.values().flatten()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.by_attempt.values_mut().flatten()
    }
}
