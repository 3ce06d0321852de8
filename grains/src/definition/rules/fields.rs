//! Each kind has its fields: what it needs is there, what it does not take is not.

use super::Context;
use crate::definition::document::{Kind, Step};
use crate::definition::finding::{Finding, Spot};
use crate::definition::shape::{skill_reference, workflow_reference};

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    for step in &cx.document.steps {
        let Some(kind) = step.kind else { continue };
        let (kind, spot) = (kind.value, kind.spot);
        for given in &step.given {
            let name = given.value.as_str();
            if matches!(name, "id" | "kind" | "name") || kind.fields().contains(&name) {
                continue;
            }
            let message =
                format!("Expected only {} in {}, but found `{name}`", kind.fields().join(", "), with_article(kind));
            findings.push(Finding::error("wrong-field", given.spot, step.field(name), message));
        }
        let needs: &[&str] = match kind {
            Kind::Agent => &["agent"],
            Kind::Tool => &["tool"],
            Kind::Condition => &["expression"],
            Kind::SubWorkflow => &["workflow"],
            Kind::PlannedGoal => &["goal", "agent"],
            Kind::SkillInvocation => &["skill"],
            Kind::WaitForCondition => &["condition", "timeout"],
            Kind::Branch => &["condition", "onTrue", "onFalse"],
            Kind::Human | Kind::Fanout | Kind::Join | Kind::Timer | Kind::Compensation => &[],
        };
        for field in needs.iter().filter(|field| !has(step, field)) {
            let message = format!("Expected `{field}` in {}, but it is not there", with_article(kind));
            findings.push(Finding::error("missing-field", spot, step.field(field), message));
        }
        match kind {
            Kind::Timer => exactly_one(step, spot, ["delay", "until"], findings),
            Kind::Compensation => exactly_one(step, spot, ["agent", "tool"], findings),
            Kind::SubWorkflow => {
                if let Some(workflow) = &step.workflow
                    && let Err(message) = workflow_reference(&workflow.value)
                {
                    findings.push(Finding::error("bad-name", workflow.spot, step.field("workflow"), message));
                }
            }
            Kind::SkillInvocation => {
                if let Some(skill) = &step.skill
                    && let Err(message) = skill_reference(&skill.value)
                {
                    findings.push(Finding::error("bad-name", skill.spot, step.field("skill"), message));
                }
            }
            _ => {}
        }
    }
}

fn exactly_one(step: &Step, spot: Spot, fields: [&str; 2], findings: &mut Vec<Finding>) {
    let found = match (has(step, fields[0]), has(step, fields[1])) {
        (true, true) => "both are there",
        (false, false) => "neither is there",
        _ => return,
    };
    let message = format!("Expected either `{}` or `{}`, but {found}", fields[0], fields[1]);
    findings.push(Finding::error("missing-field", spot, step.field(fields[0]), message));
}

fn has(step: &Step, field: &str) -> bool {
    step.given.iter().any(|given| given.value == field)
}

fn with_article(kind: Kind) -> String {
    let article = if kind == Kind::Agent { "an" } else { "a" };
    format!("{article} {} step", kind.as_str())
}
