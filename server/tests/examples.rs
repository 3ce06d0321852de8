//! The definitions in `examples/` are what they say: valid, complete, and served by the worker files beside them.

use grains::definition::{self, Environment, Finding, Loaded, Mode};
use granary::worker::config;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn files(ending: &str, without: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder())
        .expect("examples")
        .map(|e| e.expect("entry").file_name().into_string().expect("name"));
    let mut names: Vec<String> =
        names.filter(|n| n.ends_with(ending) && (without.is_empty() || !n.ends_with(without))).collect();
    names.sort();
    names
}

fn load(name: &str, mode: Mode) -> Loaded {
    let text = std::fs::read_to_string(folder().join(name)).expect("example");
    let schemas: BTreeMap<String, String> = std::fs::read_dir(folder().join("schemas"))
        .expect("schemas")
        .map(|e| e.expect("entry").path())
        .map(|p| {
            let name = format!("schemas/{}", p.file_name().and_then(|n| n.to_str()).expect("name"));
            (name, std::fs::read_to_string(p).expect("schema"))
        })
        .collect();
    let sub_workflows = HashMap::from([("feature-tour-leaflet".to_owned(), Vec::new())]);
    definition::load(&text, mode, &Environment { schemas, sub_workflows, ..Environment::default() })
}

fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

/// [L8] What ships publishes, but for the one that is there to show what a draft is.
#[test]
fn every_example_publishes_but_the_draft() {
    let documents = files(".yaml", ".worker.yaml");
    assert!(documents.len() >= 4, "{documents:?}");
    for name in documents {
        let loaded = load(&name, Mode::Publish);
        if name.ends_with("-draft.yaml") {
            assert!(loaded.plan.is_none(), "{name} was to be incomplete");
        } else {
            assert_eq!(shown(&loaded.findings), Vec::<String>::new(), "{name}");
            assert!(loaded.plan.is_some(), "{name}");
        }
    }
}

/// [D4] S1's example, as printed there: a draft with warnings, and the same list as errors when it is to be published.
#[test]
fn the_draft_runs_with_warnings_and_is_refused_with_the_same_list() {
    let draft = load("repository-assessment-draft.yaml", Mode::Draft);
    let publish = load("repository-assessment-draft.yaml", Mode::Publish);
    assert!(draft.plan.is_some() && publish.plan.is_none());
    assert!(draft.findings.iter().all(|f| !f.is_error()) && publish.findings.iter().all(Finding::is_error));
    let codes = |loaded: &Loaded| loaded.findings.iter().map(|f| (f.code, f.path.clone(), f.spot)).collect::<Vec<_>>();
    assert_eq!(codes(&draft), codes(&publish));
    assert_eq!(draft.findings.len(), 6, "{:?}", shown(&draft.findings));
}

/// [D4] The completed version is the same graph.
#[test]
fn the_completed_version_has_the_same_edges() {
    let edges = |loaded: Loaded| {
        let plan = loaded.plan.expect("a plan");
        let name = |ix| plan.step(ix).id.clone();
        plan.edges.iter().map(|e| (name(e.from), name(e.to), format!("{:?}", e.guard))).collect::<Vec<_>>()
    };
    assert_eq!(
        edges(load("repository-assessment.yaml", Mode::Publish)),
        edges(load("repository-assessment-draft.yaml", Mode::Draft))
    );
}

/// [C4] Whatever an example asks for, the worker file beside it does.
#[test]
fn the_worker_files_serve_every_queue_of_their_examples() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    for (documents, worker) in [
        (&["repository-assessment.yaml", "repository-assessment-draft.yaml"][..], "repository-assessment.worker.yaml"),
        (&["feature-tour.yaml", "feature-tour-leaflet.yaml"][..], "feature-tour.worker.yaml"),
        (&["phone-automation.yaml"][..], "phone-automation.worker.yaml"),
    ] {
        let config = config::read(&folder().join(worker), &|_| None).unwrap_or_else(|e| panic!("{e}"));
        let served: BTreeSet<String> = config.handlers.into_iter().map(|(queue, _)| queue).collect();
        for document in documents {
            let plan = load(document, Mode::Draft).plan.expect("a plan");
            let asked: BTreeSet<String> = plan.steps.iter().filter_map(|step| step.kind.queue()).collect();
            assert!(asked.is_subset(&served), "{document} asks for {asked:?}, {worker} serves {served:?}");
        }
    }
}

/// [O2] The skills beside the examples load as they are, and the phone's worker does their calls.
#[test]
fn the_skills_are_valid_and_served() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config =
        config::read(&folder().join("phone-automation.worker.yaml"), &|_| None).unwrap_or_else(|e| panic!("{e}"));
    let served: BTreeSet<String> = config.handlers.into_iter().map(|(queue, _)| queue).collect();
    let skills = std::fs::read_dir(folder().join("skills")).expect("skills").map(|e| e.expect("entry").path());
    for path in skills {
        let text = std::fs::read_to_string(&path).expect("a skill");
        let loaded = definition::skill::load_skill(&text, &Environment::default());
        assert_eq!(shown(&loaded.findings), Vec::<String>::new(), "{}", path.display());
        let plan = loaded.skill.and_then(|skill| skill.plan("r", "h", &Environment::default())).expect("a plan");
        let asked: BTreeSet<String> = plan.steps.iter().filter_map(|step| step.kind.queue()).collect();
        assert!(asked.is_subset(&served), "{} asks for {asked:?}", path.display());
    }
}

#[test]
fn inputs_and_schemas_are_json() {
    let schemas = std::fs::read_dir(folder().join("schemas")).expect("schemas").map(|e| e.expect("entry").path());
    for path in files(".json", "").into_iter().map(|n| folder().join(n)).chain(schemas) {
        let text = std::fs::read_to_string(&path).expect("reads");
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}
