//! Questions that a run has for people: answered at the terminal, by a rule, or left.

use super::client::Client;
use super::out::{say, say_part};
use super::table::moment;
use super::{Exit, Failure, approvals, board, out};
use granary_proto::v1;
use granary_proto::wire::Json;
use std::collections::HashSet;
use std::io::BufRead;
use tokio_util::sync::CancellationToken;

/// Lines of a proposal that are shown.
const PROPOSAL_LINES_MAX: usize = 40;
/// Wrong answers before it is taken as "later".
const TRIES: usize = 5;

/// What to do when a person is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decide {
    /// Watch only; somebody else decides.
    Nothing,
    /// Ask at the terminal.
    Ask,
    /// Approve approvals, and give an escalated step one more try.
    Approve,
    /// Reject approvals, and let an escalated step fail.
    Reject,
    /// End with the word that the run waits.
    Wait,
}

/// What was answered or left so far.
#[derive(Default)]
pub struct Decided {
    left: HashSet<String>,
    retried: HashSet<String>,
}

/// One decision: the word, and what goes with it.
#[derive(Debug, PartialEq)]
struct Answer {
    decision: String,
    answer: Option<Json>,
    comment: String,
}

/// Answers what is pending, by the rule. Gives an exit if the run goes no further without somebody else.
pub async fn answer(
    client: &Client,
    graph: &v1::RunGraph,
    rule: &Decide,
    decided: &mut Decided,
    stop: &CancellationToken,
) -> Result<Option<Exit>, Failure> {
    let asks = |step: &v1::StepRun| step.waiting.as_ref().is_some_and(|w| w.on == "human");
    let children: Vec<&str> =
        graph.step_runs.iter().filter_map(|s| s.waiting.as_ref()).map(|w| w.child_run_id.as_str()).collect();
    let asked_here = graph.step_runs.iter().any(asks) || graph.state == "WaitingForHuman";
    if *rule == Decide::Nothing {
        return Ok(None);
    }
    let mut pending = Vec::new();
    let runs =
        asked_here.then_some(graph.run_id.as_str()).into_iter().chain(children.into_iter().filter(|id| !id.is_empty()));
    for run in runs {
        pending.extend(approvals::all(client, "pending", run).await?);
    }
    let mut open = 0;
    for approval in &pending {
        if decided.left.contains(&approval.approval_id) {
            open += 1;
            continue;
        }
        match by_rule(approval, *rule, decided, stop).await {
            Some(answer) => decide(client, approval, answer).await?,
            None => {
                decided.left.insert(approval.approval_id.clone());
                open += 1;
            }
        }
    }
    // Only when nothing else moves, and nothing was answered just now.
    let stuck = open > 0 && open == pending.len() && (graph.state == "WaitingForHuman" || !asked_here);
    Ok((stuck || stop.is_cancelled()).then_some(Exit::Waiting))
}

async fn by_rule(
    approval: &v1::Approval,
    rule: Decide,
    decided: &mut Decided,
    stop: &CancellationToken,
) -> Option<Answer> {
    let word = |word: &str| Some(Answer { decision: word.to_owned(), answer: None, comment: String::new() });
    match (rule, approval.kind.as_str()) {
        (Decide::Ask, _) => ask(approval, stop).await,
        (Decide::Approve, "approval") => word("approve"),
        (Decide::Reject, "approval" | "input") => word("reject"),
        // Once only: a step that fails again and again would keep this going for ever.
        (Decide::Approve, "escalation") if decided.retried.insert(approval.step_run_id.clone()) => word("retry"),
        (Decide::Reject, "escalation") => word("fail"),
        _ => None,
    }
}

async fn decide(client: &Client, approval: &v1::Approval, answer: Answer) -> Result<(), Failure> {
    let request = v1::DecideApprovalRequest {
        approval_id: approval.approval_id.clone(),
        decision: answer.decision,
        proposal_version: approval.proposal_version,
        answer: answer.answer,
        comment: answer.comment,
        decided_by: client.user().to_owned(),
        run_id: approval.run_id.clone(),
    };
    match client.run_control().decide_approval(request).await {
        Ok(_) => Ok(()),
        // Somebody else was faster, or it was withdrawn: the next graph tells.
        Err(status) if matches!(status.code(), tonic::Code::FailedPrecondition | tonic::Code::NotFound) => Ok(()),
        Err(status) => Err(status.into()),
    }
}

/// Asks at the terminal. `None`: later, or standard input has ended.
async fn ask(approval: &v1::Approval, stop: &CancellationToken) -> Option<Answer> {
    say!();
    for line in question(approval) {
        say!("  {line}");
    }
    for _ in 0..TRIES {
        say_part!("  {} ", prompt(approval));
        // Who is not shown the question cannot answer it.
        if out::is_closed() {
            return None;
        }
        let line = tokio::select! {
            line = read_line() => line?,
            () = stop.cancelled() => return None,
        };
        match understand(approval, line.trim()) {
            Understood::Answer(answer) => return Some(answer),
            Understood::Later => return None,
            Understood::Not(why) => say!("  {why}"),
        }
    }
    None
}

/// On a thread of its own: a read from the terminal cannot be taken back, and must not hold up the end of the process.
async fn read_line() -> Option<String> {
    let (tell, line) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        let _ = tell.send(matches!(read, Ok(1..)).then_some(line));
    });
    line.await.ok().flatten()
}

fn question(approval: &v1::Approval) -> Vec<String> {
    let mut lines = vec![format!("{} {} asks for: {}", approval.definition_id, approval.step_id, approval.kind)];
    if !approval.reason.is_empty() {
        lines.push(format!("because  {}", approval.reason));
    }
    lines.push(format!("version  {} (since {})", approval.proposal_version, moment(approval.requested_at.as_ref())));
    if let Some(proposal) = &approval.proposal {
        let text = board::pretty(proposal);
        let all = text.lines().count();
        lines.extend(text.lines().take(PROPOSAL_LINES_MAX).map(str::to_owned));
        if all > PROPOSAL_LINES_MAX {
            lines.push(format!("… and {} lines more", all - PROPOSAL_LINES_MAX));
        }
    }
    lines
}

fn prompt(approval: &v1::Approval) -> String {
    match approval.kind.as_str() {
        "input" => "answer as JSON in one line, or (l)ater?".to_owned(),
        "escalation" => format!("{} or (l)ater?", approval.options.join(", ")),
        _ => "(a)pprove, (r)eject or (l)ater? A comment may follow:".to_owned(),
    }
}

#[derive(Debug, PartialEq)]
enum Understood {
    Answer(Answer),
    Later,
    Not(String),
}

fn understand(approval: &v1::Approval, line: &str) -> Understood {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let with = |decision: &str| {
        Understood::Answer(Answer { decision: decision.to_owned(), answer: None, comment: rest.trim().to_owned() })
    };
    if matches!(word, "l" | "later") {
        return Understood::Later;
    }
    match approval.kind.as_str() {
        "input" => match serde_json::from_str::<serde_json::Value>(line) {
            Ok(value) => Understood::Answer(Answer {
                decision: "answer".to_owned(),
                answer: Some(Json::of(&value)),
                comment: String::new(),
            }),
            Err(error) => Understood::Not(format!("Expected JSON, but found a fault: {error}")),
        },
        "escalation" if approval.options.iter().any(|option| option == word) => with(word),
        "escalation" => {
            Understood::Not(format!("Expected one of {}, but found {word:?}.", approval.options.join(", ")))
        }
        _ => match word {
            "a" | "approve" | "y" | "yes" => with("approve"),
            "r" | "reject" | "n" | "no" => with("reject"),
            _ => Understood::Not(format!("Expected a, r or l, but found {word:?}.")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(kind: &str) -> v1::Approval {
        v1::Approval {
            kind: kind.to_owned(),
            options: vec!["retry".to_owned(), "skip".to_owned(), "fail".to_owned()],
            ..Default::default()
        }
    }

    #[test]
    fn what_is_typed_is_understood_or_explained() {
        let decision = |kind: &str, line: &str| match understand(&approval(kind), line) {
            Understood::Answer(a) => format!("{} {}", a.decision, a.comment),
            Understood::Later => "later".to_owned(),
            Understood::Not(why) => why,
        };
        for (kind, line, wanted) in [
            ("approval", "a", "approve "),
            ("approval", "r too risky", "reject too risky"),
            ("approval", "l", "later"),
            ("approval", "maybe", "Expected a, r or l, but found \"maybe\"."),
            ("escalation", "retry", "retry "),
            ("escalation", "a", "Expected one of retry, skip, fail, but found \"a\"."),
            ("input", "{\"a\": 1}", "answer "),
        ] {
            assert_eq!(decision(kind, line), wanted, "{kind} {line}");
        }
        assert!(decision("input", "{").starts_with("Expected JSON"));
    }

    #[tokio::test]
    async fn a_rule_retries_an_escalated_step_once() {
        let (mut decided, stop) = (Decided::default(), CancellationToken::new());
        let word = |a: Option<Answer>| a.map(|a| a.decision);
        assert_eq!(
            word(by_rule(&approval("escalation"), Decide::Approve, &mut decided, &stop).await).as_deref(),
            Some("retry")
        );
        assert_eq!(word(by_rule(&approval("escalation"), Decide::Approve, &mut decided, &stop).await), None);
        assert_eq!(word(by_rule(&approval("input"), Decide::Approve, &mut decided, &stop).await), None);
        assert_eq!(word(by_rule(&approval("approval"), Decide::Wait, &mut decided, &stop).await), None);
    }
}
