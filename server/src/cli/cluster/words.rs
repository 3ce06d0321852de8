//! What `granary cluster up` says: a table and lines for people, an object a line for programs.

use super::super::out::{say, say_part};
use super::super::style::Style;
use super::super::table::Table;
use super::children::Children;
use super::layout::Plan;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

pub struct Words {
    pub json: bool,
    pub style: Style,
}

impl Words {
    pub fn begun(&self, dir: &Path, nodes: usize, kept: bool) {
        if self.json {
            say!("{}", json!({ "event": "begun", "dir": dir.display().to_string(), "nodes": nodes }));
            return;
        }
        let fate = if kept { "" } else { " (removed at the end)" };
        say!("granary cluster: {nodes} silos, everything in {}{fate}", dir.display());
    }

    pub fn ready(&self, children: &Children, plans: &[Plan], took: Duration) {
        if self.json {
            let node = |(at, plan): (usize, &Plan)| json!({ "name": plan.name, "url": plan.url, "pid": children.pid(at), "log": plan.log });
            let nodes: Vec<_> = plans.iter().enumerate().map(node).collect();
            say!("{}", json!({ "event": "ready", "nodes": nodes }));
            return;
        }
        let mut table = Table::new(&["NODE", "URL", "PID", "LOG"]);
        for (at, plan) in plans.iter().enumerate() {
            let pid = children.pid(at).map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            table.row([plan.name.clone(), plan.url.clone(), pid, plan.log.display().to_string()]);
        }
        say!("ready after {:.1} s\n", took.as_secs_f64());
        say_part!("{}", table.render(self.style));
        let urls: Vec<&str> = plans.iter().map(|plan| plan.url.as_str()).collect();
        say!(
            "\ntry: export GRANARY_SERVER={}\n     granary cluster status   |   granary run FILE --worker FILE   |   kill -9 PID\nctrl-C stops \
             them all",
            urls.join(",")
        );
    }

    pub fn ended(&self, plan: &Plan, how: &str, left: usize, last_words: &str) {
        if self.json {
            say!("{}", json!({ "event": "ended", "node": plan.name, "how": how, "left": left }));
            return;
        }
        say!("{} ended ({how}); {left} left", plan.name);
        if !last_words.is_empty() {
            last_words.lines().for_each(|line| say!("  {}", self.style.dim(line)));
        }
    }

    pub fn started_again(&self, plan: &Plan, pid: Option<u32>) {
        if self.json {
            say!("{}", json!({ "event": "started", "node": plan.name, "url": plan.url, "pid": pid }));
        } else {
            say!("{} started again, pid {}", plan.name, pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()));
        }
    }

    pub fn stopping(&self) {
        if !self.json {
            say!("stopping; ctrl-C again kills them");
        }
    }

    pub fn stopped(&self, took: Duration) {
        if self.json {
            say!("{}", json!({ "event": "stopped" }));
        } else {
            say!("all stopped after {:.1} s", took.as_secs_f64());
        }
    }
}
