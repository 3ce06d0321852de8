//! A skill whose node is killed between two of its calls.
#![allow(clippy::unwrap_used)]

mod common;

use common::process::{Said, a_run, granary, soon, written};
use std::path::Path;

const CALLS: [&str; 4] = ["one", "two", "three", "four"];

/// A skill of four calls of one tool. A call says that it began and that it is done; the first life of the call `hangs` never
/// gets there. Nothing here looks whether it was done before: a call that is made twice is in the list twice.
fn prepare(dir: &Path, hangs: &str) {
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    let call = |id: &str| {
        format!(
            "  - {{ id: {id}, tool: act, actionClass: shared-write, arguments: {{ said: '{{{{word}}}} {id}' }} }}\n"
        )
    };
    std::fs::create_dir(dir.join("skills")).unwrap();
    write(
        "skills/four.yaml",
        &format!(
            "skill: four\nversion: 1\nkind: flow-template\nparameters:\n  word: {{ type: string, required: true }}\nsteps:\n{}",
            CALLS.map(call).concat()
        ),
    );
    write(
        "list.yaml",
        "workflow: list\nversion: 1\ninput: builtin:any\noutput: builtin:any\nsteps:\n  \
         - { id: say, kind: SkillInvocation, skill: four, arguments: { word: { var: input.word } } }\n",
    );
    let script = format!(
        "echo $WORK_STEP_ID >> begun; if [ $WORK_STEP_ID = {hangs} ]; then echo $$ >> pids; \
         test $(wc -l < pids) -gt 1 || while :; do sleep 0.05; done; fi; echo $WORK_STEP_ID >> done; cat"
    );
    // It may be begun again if nobody knows how it ended: only so is the call in progress made again, and not asked about.
    write("list.worker.yaml", &format!("tools:\n  act: {{ command: [sh, -c, {script:?}], idempotent: true }}\n"));
    write("input.json", r#"{"word":"say"}"#);
}

fn lines(dir: &Path, name: &str) -> Vec<String> {
    std::fs::read_to_string(dir.join(name)).unwrap().lines().map(str::to_owned).collect()
}

/// [O2] [K3] [K7] `kill -9` after call k of four is recorded: after the restart calls 1 to k are not made again, and the others are,
/// in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_skill_killed_between_two_calls_goes_on_behind_the_recorded_ones() {
    for (recorded, hangs) in CALLS.iter().enumerate().skip(1) {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), hangs);
        let run = a_run();
        let text = |name: &str| dir.path().join(name).display().to_string();
        let (file, input, data) = (text("list.yaml"), text("input.json"), text("data"));
        let command =
            || granary(&["run", &file, "--input", &input, "--data", &data, "--run-id", &run, "--format", "json"]);
        let mut first = command().spawn().unwrap();
        // It is offered in the commit that records the call before it.
        written(&dir.path().join("pids")).await;
        first.kill().await.unwrap();
        assert_eq!(lines(dir.path(), "done"), CALLS[..recorded], "{hangs}");

        let graph = Said::of(&soon(command().output()).await.unwrap()).ended_with(0).json();
        assert_eq!(lines(dir.path(), "done"), CALLS, "{hangs}");
        let mut begun = CALLS.to_vec();
        begun.insert(recorded, hangs);
        assert_eq!(lines(dir.path(), "begun"), begun, "only the call in progress is begun again");
        assert_eq!(graph["state"], "Completed");
        assert_eq!(graph["output"]["said"], "say four", "{graph:#}");
    }
}
