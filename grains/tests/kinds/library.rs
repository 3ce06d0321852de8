//! Releases and definitions.

use crate::world::{START, TENANT, World};
use grain_contract::{Code, GrainId, GrainKind, TenantId};
use grains::kinds::RunMode;
use grains::kinds::definition::DRAFTS_MAX;
use grains::kinds::methods::{definition, index, release};
use granary_proto::{calls, v1};

fn id(kind: &str, key: &str) -> GrainId {
    GrainId::new(&TenantId::new(TENANT), &GrainKind::new(kind), key)
}

fn put(version: &str, hash: &str) -> calls::PutRelease {
    calls::PutRelease {
        release_id: format!("line@{version}"),
        definition_id: "line".into(),
        version: version.into(),
        graph_hash: hash.into(),
        document: b"{}".to_vec(),
        ..Default::default()
    }
}

/// [D5] [D6] A release is immutable: the same again is the same answer, another content is a conflict, and the event tells of
/// it once.
#[test]
fn a_release_is_put_once() {
    let mut world = World::new(RunMode::Bundled);
    let target = id(release::KIND, "line@1");
    let unknown = world.call::<calls::PutRelease>(&target, release::GET, &()).expect_err("not loaded");
    assert_eq!(unknown.code, Code::NotFound);
    let at = |ms| {
        let loaded_at = Some(granary_proto::wire::Timestamp::from_millis(ms));
        let summary = Some(v1::DefinitionVersion { loaded_at, ..Default::default() });
        calls::PutRelease { summary, ..put("1", "h1") }
    };
    let first: calls::PutReleaseReply = world.call(&target, release::PUT, &at(1)).expect("put");
    assert!(!first.repeated && first.summary == at(1).summary);
    for ms in 2..5 {
        let again: calls::PutReleaseReply = world.call(&target, release::PUT, &at(ms)).expect("the same");
        assert!(again.repeated);
        assert_eq!(again.summary, first.summary, "as it was loaded first");
    }
    let refusals = [
        (put("1", "h2"), Code::Conflict, "graphHash h1"),
        (calls::PutRelease { version: "2".into(), ..put("1", "h1") }, Code::Conflict, "version 1"),
        (calls::PutRelease { definition_id: "x".into(), ..put("1", "h1") }, Code::Conflict, "definitionId line"),
        (put("2", "h1"), Code::Invalid, "Expected release line@1"),
    ];
    for (what, code, words) in refusals {
        let rejection = world.call::<calls::PutReleaseReply>(&target, release::PUT, &what).expect_err("refused");
        assert_eq!(rejection.code, code);
        assert!(rejection.message.contains(words), "{}", rejection.message);
    }
    let loaded = v1::WorkflowDefinitionLoaded {
        release_id: "line@1".into(),
        tenant_id: TENANT.into(),
        definition_id: "line".into(),
        version: "1".into(),
        graph_hash: "h1".into(),
    };
    let event = v1::Event {
        sequence: 1,
        at_ms: START,
        subject: "line@1".into(),
        payload: Some(v1::event::Payload::DefinitionLoaded(loaded)),
    };
    assert_eq!(world.events, [event]);
    assert_eq!(world.call::<calls::PutRelease>(&target, release::GET, &()).expect("loaded"), at(1));
}

/// A draft's schemas follow the author's edits without a second event.
#[test]
fn a_draft_takes_other_schemas() {
    let mut world = World::new(RunMode::Bundled);
    let target = id(release::KIND, "line@1");
    let with = |schema: &str, draft| calls::PutRelease {
        schemas: [("in.json".to_owned(), schema.to_owned())].into(),
        draft,
        ..put("1", "h1")
    };
    for schema in ["{}", "true"] {
        let _: calls::PutReleaseReply = world.call(&target, release::PUT, &with(schema, true)).expect("a draft");
    }
    assert_eq!(world.call::<calls::PutRelease>(&target, release::GET, &()).expect("loaded"), with("true", true));
    assert_eq!(world.events.len(), 1);
}

fn version(number: &str, hash: &str, draft: bool) -> calls::AddVersion {
    calls::AddVersion {
        version: Some(v1::DefinitionVersion {
            definition_id: "line".into(),
            version: number.into(),
            release_id: if draft { format!("draft-{hash}") } else { format!("line@{number}") },
            graph_hash: hash.into(),
            draft,
            ..Default::default()
        }),
    }
}

/// [D7] [FR-092] Versions are listed newest first; a published one has one content for ever.
#[test]
fn versions_are_added_once() {
    let mut world = World::new(RunMode::Bundled);
    let target = id(definition::KIND, "line");
    let list = |world: &mut World| {
        world.call::<v1::ListWorkflowDefinitionVersionsResponse>(&target, definition::LIST, &()).map(|r| r.versions)
    };
    assert_eq!(list(&mut world).expect_err("none yet").code, Code::NotFound);
    for (number, hash) in [("1", "h1"), ("2", "h2"), ("1", "h1"), ("2", "h2")] {
        let _: () = world.call(&target, definition::ADD_VERSION, &version(number, hash, false)).expect("added");
    }
    let found: Vec<String> = list(&mut world).expect("a list").into_iter().map(|v| v.version).collect();
    assert_eq!(found, ["2", "1"]);
    let same_release = world.call::<()>(&target, definition::ADD_VERSION, &version("1", "h9", false)).expect_err("no");
    assert_eq!(same_release.code, Code::Conflict);
    let mut elsewhere = version("1", "h9", false);
    if let Some(v) = &mut elsewhere.version {
        v.release_id = "another-release".into();
    }
    let same_version = world.call::<()>(&target, definition::ADD_VERSION, &elsewhere).expect_err("no");
    assert_eq!((same_version.code, same_version.field.as_str()), (Code::Conflict, "version"));
    let mut foreign = version("3", "h3", false);
    if let Some(v) = &mut foreign.version {
        v.definition_id = "other".into();
    }
    assert_eq!(world.call::<()>(&target, definition::ADD_VERSION, &foreign).expect_err("no").code, Code::Invalid);
    assert_eq!(world.index_of(index::DEFINITIONS), ["line"], "one entry, whatever was added");
}

/// Drafts may repeat a version; only the newest are kept.
#[test]
fn drafts_come_and_go() {
    let mut world = World::new(RunMode::Bundled);
    let target = id(definition::KIND, "line");
    let _: () = world.call(&target, definition::ADD_VERSION, &version("1", "published", false)).expect("added");
    for number in 0..DRAFTS_MAX + 5 {
        let _: () =
            world.call(&target, definition::ADD_VERSION, &version("1", &format!("d{number}"), true)).expect("added");
    }
    let list: v1::ListWorkflowDefinitionVersionsResponse = world.call(&target, definition::LIST, &()).expect("a list");
    assert_eq!(list.versions.len(), DRAFTS_MAX + 1);
    assert_eq!(list.versions[0].graph_hash, format!("d{}", DRAFTS_MAX + 4));
    assert!(list.versions.iter().any(|v| !v.draft), "what is published stays");
}

#[test]
fn other_numbers_are_refused_and_reminders_are_no_fault() {
    let mut world = World::new(RunMode::Bundled);
    for kind in [release::KIND, definition::KIND] {
        let target = id(kind, "line");
        let rejection = world.call::<()>(&target, grain_contract::Method(99), &()).expect_err("no such call");
        assert_eq!(rejection.code, Code::Invalid);
        assert!(world.send(&target, &grain_contract::Message::Wake).is_ok());
        let garbage = grain_contract::Message::Call { method: grain_contract::Method(1), body: &[0xff; 9] };
        assert_eq!(world.send(&target, &garbage).expect_err("garbage").code, Code::Invalid);
    }
}
