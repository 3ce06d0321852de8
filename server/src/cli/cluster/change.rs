//! `granary cluster drain`, `remove`, `transfer`.

use super::super::client::Client;
use super::super::out::say;
use super::super::{Common, Exit, Failure};
use granary_proto::v1;

pub async fn drain(common: &Common, client: &Client, node: String, undo: bool) -> Result<Exit, Failure> {
    client.cluster().drain_node(v1::DrainNodeRequest { node: node.clone(), undo }).await?;
    let words =
        if undo { "is no longer drained" } else { "is being drained; `granary cluster status` shows how far it is" };
    done(common, &node, words)
}

pub async fn remove(common: &Common, client: &Client, node: String) -> Result<Exit, Failure> {
    client.cluster().remove_node(v1::RemoveNodeRequest { node: node.clone() }).await?;
    done(common, &node, "is being removed; `granary cluster status` shows how far it is")
}

pub async fn transfer(common: &Common, client: &Client, shard: u32, node: String) -> Result<Exit, Failure> {
    client.cluster().transfer_shard(v1::TransferShardRequest { shard, node: node.clone() }).await?;
    done(common, &node, &format!("leads shard {shard}"))
}

fn done(common: &Common, node: &str, words: &str) -> Result<Exit, Failure> {
    if common.is_json() {
        say!("{}", serde_json::json!({ "node": node }));
    } else {
        say!("{node} {words}");
    }
    Ok(Exit::Good)
}
