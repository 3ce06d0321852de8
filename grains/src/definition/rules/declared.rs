//! Steps that act on the world declare their action class and failure policy.

use super::Context;
use crate::definition::document::Kind;
use crate::definition::environment::Mode;
use crate::definition::finding::Finding;
use crate::definition::plan::FailurePolicy;
use crate::definition::tree::quote;

pub(super) fn check(cx: &Context<'_>, findings: &mut Vec<Finding>) {
    let default_class = cx.env.action_classes.first().map_or("read", String::as_str);
    for step in &cx.document.steps {
        let Some(kind) = step.kind else { continue };
        let given = |name: &str| step.given.iter().any(|given| given.value == name);
        if kind.value.must_declare() && !given("actionClass") {
            let message = format!(
                "Expected a declared action class in `{}`, but there is none; a draft takes `{default_class}`",
                step.id.value
            );
            cx.undeclared(findings, "undeclared-action-class", kind.spot, step.field("actionClass"), message);
        }
        if kind.value.must_declare() && !given("failurePolicy") {
            let message = format!(
                "Expected a declared failure policy in `{}`, but there is none; a draft takes `Fail`",
                step.id.value
            );
            cx.undeclared(findings, "undeclared-failure-policy", kind.spot, step.field("failurePolicy"), message);
        }
        if kind.value == Kind::Compensation && !given("actionClass") && cx.mode != Mode::Stored {
            let message = format!(
                "Expected a declared action class in `{}`, but there is none; it takes `{default_class}`",
                step.id.value
            );
            findings.push(Finding::warning("undeclared-action-class", kind.spot, step.field("actionClass"), message));
        }
        if let Some(class) = &step.action_class
            && cx.mode != Mode::Stored
            && !cx.env.action_classes.contains(&class.value)
        {
            let message = format!(
                "Expected one of the action classes {}, but found {}",
                cx.env.action_classes.join(", "),
                quote(&class.value)
            );
            findings.push(Finding::error("unknown-action-class", class.spot, step.field("actionClass"), message));
        }
        if let (Some(policy), Some(attempts)) = (step.failure_policy, step.max_attempts)
            && policy.value == FailurePolicy::Retry
            && attempts.value == 1
            && cx.mode != Mode::Stored
        {
            let message =
                "Expected at least 2 attempts where the failure policy is `Retry`, but found 1: nothing is tried again";
            findings.push(Finding::warning(
                "retry-without-attempts",
                attempts.spot,
                step.field("maxAttempts"),
                message,
            ));
        }
    }
}
