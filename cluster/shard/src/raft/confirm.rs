//! Whether an owner still is one, asked before what it read leaves.
//!
//! The lease is what a majority of the voters has promised by answering: that for `election_max` after the question was
//! sent none of them helps another leader. openraft counts it from the time of sending, on the leader's own monotonic
//! clock, which goes on while a process is frozen. So one that wakes after its lease finds it over, whatever it had in hand.
//!
//! Everything acknowledged by this owner was applied here before it was acknowledged, and an epoch is only told when
//! all of the epochs before are applied; so the rows here are as new as any reader may demand.

use super::shard::ShardInner;
use crate::Error;
use grain_contract::Epoch;
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};

impl ShardInner {
    pub async fn confirm(&self, epoch: Epoch) -> Result<(), Error> {
        self.owned(epoch)?;
        // Nobody else can lead a shard of a node that is alone.
        if self.patience.is_none() {
            return Ok(());
        }
        let nobody = |leader| Error::NotLeader { shard: self.id.0, leader };
        let Some(replica) = self.replica() else { return Err(nobody(None)) };
        match replica.raft.get_read_linearizer(ReadPolicy::LeaseRead).await {
            // The lease may be that of a later leadership of this node, gained since the first look.
            Ok(_) => self.owned(epoch),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(to))) => {
                Err(nobody(to.leader_id.filter(|leader| *leader != self.node)))
            }
            Err(RaftError::APIError(_)) => Err(nobody(None)),
            Err(RaftError::Fatal(fatal)) => Err(Error::Unknown(fatal.to_string())),
        }
    }
}
