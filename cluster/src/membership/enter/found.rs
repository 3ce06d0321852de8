//! Founding: note → take the id → tell the others → begin the groups → write the book → forget the notes.
//!
//! Each step is safe to repeat, and after a crash all are repeated from the notes.

use super::notes::Notes;
use crate::membership::Error;
use crate::membership::ask::{ADOPT, BEGIN, is_passing};
use crate::membership::book::{self, to_view};
use crate::membership::ground::Inner;
use crate::peers::Refused;
use crate::placement::{Ring, Site};
use futures::future::join_all;
use granary_proto::peers::{
    AdoptAnswer, AdoptRequest, BeginAnswer, BeginRequest, BookMember, BookPlace, BookView, FoundBook, Greeting,
};
use shard::{NodeId, ShardId};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Draws a cluster, notes it and takes its id. From here on there is no way back, and the next round goes on.
pub(super) async fn first_step(inner: &Inner, others: &[Greeting]) -> Result<String, Error> {
    let cluster = Uuid::from_bytes(rand::random());
    let founders = others.iter().filter(|it| inner.options.founders.contains(&it.name));
    let mut members: Vec<BookMember> = founders.map(member_of).collect();
    members.push(BookMember { generation: 1, ..inner.member() });
    let view = first_page(cluster, members, inner.ground.host.shards(), inner.options.replicas);
    Notes(view).write(&inner.options.data_dir)?;
    take_id(inner, cluster).await?;
    Ok("The founding has begun.".to_owned())
}

/// `None` once the cluster stands; otherwise what is missing.
pub(super) async fn go_on(inner: &Inner, notes: &Notes) -> Result<Option<String>, Error> {
    let page = &notes.0;
    let cluster = parse(&page.cluster_id).map_err(Error::Options)?;
    match tell_all(inner, page).await {
        Told::All => {}
        Told::Missing(why) => return Ok(Some(why)),
        // This node died between writing the book and forgetting the notes. By now the cluster may look quite different.
        Told::Founded => {
            Notes::remove(&inner.options.data_dir)?;
            return Ok(Some("The cluster is founded already.".to_owned()));
        }
    }
    start_replicas(inner, &held_by(page, inner.me())).await?;
    for place in &page.places {
        if let Err(why) = begin_group(inner, page, place).await {
            return Ok(Some(format!("The founding goes on: shard {} could not be begun: {why}", place.shard)));
        }
    }
    match inner.ask(book::FOUND, &FoundBook { view: Some(page.clone()) }).await {
        Ok(view) => {
            inner
                .ground
                .directory
                .learn(to_view(&view).ok_or_else(|| Error::Options("the book cannot be read".into()))?);
            Notes::remove(&inner.options.data_dir)?;
            tracing::info!(%cluster, nodes = page.members.len(), shards = page.places.len(), "the cluster is founded");
            Ok(None)
        }
        Err(rejection) if is_passing(&rejection) => Ok(Some(format!("The founding goes on: {}", rejection.message))),
        Err(rejection) => Err(Error::Options(rejection.message)),
    }
}

enum Told {
    All,
    Missing(String),
    Founded,
}

/// Every founder belongs to the cluster and has its replicas before any group begins.
async fn tell_all(inner: &Inner, page: &BookView) -> Told {
    let attached = inner.attached();
    let others = page.members.iter().filter(|member| member.node_id != inner.me());
    // A founder that has lost its disk in the meantime is another node now, and joins when the book is there.
    let is_replaced = |member: &BookMember| {
        !attached.contains_key(&member.node_id) && attached.values().any(|info| info.name == member.name)
    };
    let calls = others.filter(|member| !is_replaced(member)).map(|member| async move {
        let request = AdoptRequest { cluster_id: page.cluster_id.clone(), shards: held_by(page, member.node_id) };
        let within = inner.options.call_within * 5;
        match inner.call::<AdoptAnswer>(member.node_id, ADOPT, &request, within).await {
            Ok(AdoptAnswer { founded: false }) => Told::All,
            Ok(AdoptAnswer { founded: true }) => Told::Founded,
            Err(error) => Told::Missing(format!("The founding goes on: {} could not be told: {error}", member.name)),
        }
    });
    let answers = join_all(calls).await;
    let worst = answers.into_iter().max_by_key(|told| match told {
        Told::All => 0,
        Told::Missing(_) => 1,
        Told::Founded => 2,
    });
    worst.unwrap_or(Told::All)
}

/// By this node if it is a voter, else by the first voter that can be called. All begin with the same voters, so it does not
/// matter if two did.
async fn begin_group(inner: &Inner, page: &BookView, place: &BookPlace) -> Result<(), String> {
    if place.replicas.contains(&inner.me()) {
        let voters = place.replicas.iter().copied().collect();
        return inner.ground.host.found(ShardId(place.shard), voters).await.map_err(|error| error.to_string());
    }
    let (cluster_id, voters) = (page.cluster_id.clone(), place.replicas.clone());
    let request = BeginRequest { cluster_id, shard: place.shard, voters };
    let mut why = "nobody can be called".to_owned();
    for node in &place.replicas {
        match inner.call::<BeginAnswer>(*node, BEGIN, &request, inner.options.call_within).await {
            Ok(_) => return Ok(()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// At a founder, from the first one.
pub(in crate::membership) async fn adopt(
    inner: &Inner,
    from: NodeId,
    request: &AdoptRequest,
) -> Result<AdoptAnswer, Refused> {
    let cluster = from_first_founder(inner, from, &request.cluster_id)?;
    if is_founded(inner) {
        return Ok(AdoptAnswer { founded: true });
    }
    take_id(inner, cluster).await.map_err(|error| Refused::Other(error.to_string()))?;
    start_replicas(inner, &request.shards).await.map_err(|error| Refused::Other(error.to_string()))?;
    Ok(AdoptAnswer { founded: false })
}

/// At a founder, from the first one, if that is no replica itself.
pub(in crate::membership) async fn begin(
    inner: &Inner,
    from: NodeId,
    request: &BeginRequest,
) -> Result<BeginAnswer, Refused> {
    from_first_founder(inner, from, &request.cluster_id)?;
    if is_founded(inner) {
        return Err(Refused::Other("the cluster is founded".to_owned()));
    }
    let voters = request.voters.iter().copied().collect();
    let begun = inner.ground.host.found(ShardId(request.shard), voters).await;
    begun.map(|()| BeginAnswer {}).map_err(|error| Refused::Other(error.to_string()))
}

/// Once this node knows the book, the founding is over: what comes now was sent before and is late.
fn is_founded(inner: &Inner) -> bool {
    inner.ground.directory.view().version > 0
}

fn from_first_founder(inner: &Inner, from: NodeId, cluster_id: &str) -> Result<Uuid, Refused> {
    let cluster = parse(cluster_id).map_err(Refused::BadRequest)?;
    let first = inner.options.founders.first();
    let caller = inner.attached().get(&from).map(|info| info.name.clone());
    if first.is_none() || caller.as_ref() != first || !inner.options.founders.contains(&inner.options.name) {
        let (wanted, found) = (first.cloned().unwrap_or_default(), caller.unwrap_or_default());
        return Err(Refused::Other(format!("Expected to be founded by {wanted:?}, but {found:?} called.")));
    }
    match inner.cluster() {
        Some(ours) if ours != cluster => Err(Refused::NotMe(format!("this node is of cluster {ours} already"))),
        _ => Ok(cluster),
    }
}

pub(super) async fn take_id(inner: &Inner, cluster: Uuid) -> Result<(), Error> {
    inner.ground.host.adopt(cluster).await?;
    (inner.ground.set_cluster)(cluster);
    Ok(())
}

async fn start_replicas(inner: &Inner, shards: &[u32]) -> Result<(), shard::Error> {
    for shard in shards {
        inner.ground.host.start_replica(ShardId(*shard)).await?;
    }
    Ok(())
}

fn first_page(cluster: Uuid, members: Vec<BookMember>, shards: u32, replicas: usize) -> BookView {
    let ring = Ring::new(members.iter().map(|member| Site::new(&member.name, &member.zone)));
    let ids: BTreeMap<&str, NodeId> = members.iter().map(|member| (member.name.as_str(), member.node_id)).collect();
    let place = |shard| {
        let mut voters: Vec<NodeId> = ring
            .replicas(ShardId(shard), replicas.max(1))
            .iter()
            .filter_map(|name| ids.get(&**name).copied())
            .collect();
        voters.sort_unstable();
        BookPlace { shard, replicas: voters }
    };
    BookView {
        cluster_id: cluster.to_string(),
        version: 0,
        replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
        places: (0..shards).map(place).collect(),
        members,
    }
}

fn held_by(page: &BookView, node: NodeId) -> Vec<u32> {
    page.places.iter().filter(|place| place.replicas.contains(&node)).map(|place| place.shard).collect()
}

fn member_of(greeting: &Greeting) -> BookMember {
    BookMember {
        node_id: greeting.node_id,
        name: greeting.name.clone(),
        boot: greeting.boot,
        generation: 1,
        client_address: greeting.client_address.clone(),
        zone: greeting.zone.clone(),
        build: greeting.build.clone(),
        ..BookMember::default()
    }
}

fn parse(cluster_id: &str) -> Result<Uuid, String> {
    Uuid::parse_str(cluster_id).map_err(|_| format!("Expected the id of a cluster, but found {cluster_id:?}."))
}
