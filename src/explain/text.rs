//! An answer for a terminal: the result first, then why.

use std::fmt::Write as _;

use super::Answer;
use super::action::{Action, BackendTold};
use super::filter::FilterTold;
use super::limits::LimitTold;
use crate::routing::explain::{Explanation, Listed, Loser, Outcome, Place, SelectorTrial, Trial, Winner};

/// Renders an answer.
pub(super) fn render(answer: &Answer) -> String {
    let mut out = String::new();
    let request = &answer.request;
    line(&mut out, &format!("{} {}{}", request.method, request.authority, request.target));
    line(&mut out, &format!("  {}", answer.result.summary));
    line(&mut out, "");
    table(&mut out, &head(answer));
    if let Some(action) = &answer.action {
        tell_action(&mut out, action);
    }
    if let Some(decision) = &answer.decision {
        decide(&mut out, decision);
    }
    if !answer.findings.is_empty() {
        section(&mut out, "Findings");
        for told in &answer.findings {
            let (kind, object, condition, reason) = (&told.kind, &told.object, &told.condition, &told.reason);
            line(&mut out, &format!("  {kind} {object}: {condition}=False, {reason}: {}", told.message));
        }
    }
    if !answer.notes.is_empty() {
        section(&mut out, "Notes");
        answer.notes.iter().for_each(|note| line(&mut out, &format!("  {note}")));
    }
    out
}

fn head(answer: &Answer) -> Vec<Vec<String>> {
    let request = &answer.request;
    let mut rows = Vec::new();
    let mut row = |name: &str, what: String| rows.push(vec![name.to_owned(), what]);
    if let Some(Explanation { winner: Some(winner), host, .. }) = &answer.decision {
        row("Selector", format!("{}, by {}", winner.selector, hostname(host.hostname.as_deref())));
        row("Route", winner.place.route.clone());
        row("Rule", rule(&winner.place));
        row("Match", format!("matches[{}], {}", winner.place.match_index, winner.place.matching));
        row("Rank", rank(winner));
    }
    if !request.path.is_empty() {
        row("Matched", format!("host {}, path {}", or_none(&request.host), request.path));
    }
    let peer = if request.peer == request.client_ip { String::new() } else { format!(", behind {}", request.peer) };
    row("Client", format!("{}{peer}, on listener {}, at {}", request.client_ip, request.listener, request.time));
    let generation = answer.generation.map(|generation| format!(", generation {generation}")).unwrap_or_default();
    row("Table", format!("{}{generation}", answer.source));
    rows
}

fn or_none(host: &str) -> &str {
    if host.is_empty() { "(none)" } else { host }
}

fn hostname(hostname: Option<&str>) -> String {
    match hostname {
        Some("*") | None => "any host".to_owned(),
        Some(name) => format!("hostname {name}"),
    }
}

fn rule(place: &Place) -> String {
    let index = format!("rules[{}]", place.rule_index);
    if place.rule == place.rule_index.to_string() { index } else { format!("{} ({index})", place.rule) }
}

fn rank(winner: &Winner) -> String {
    let standing = &winner.standing;
    let mut parts = vec![format!("path {}", standing.path_type)];
    parts.push(if standing.methods { "names methods" } else { "any method" }.to_owned());
    let counts = [
        (standing.headers, "header", format!(", {} of them Exact", standing.exact_headers)),
        (standing.query, "query parameter", String::new()),
        (standing.conditions, "condition", String::new()),
    ];
    for (count, what, more) in counts.into_iter().filter(|(count, ..)| *count > 0) {
        parts.push(format!("{}{}", many(count, what), if what == "header" { more } else { String::new() }));
    }
    let rank = winner.place.rank.map_or(0, |rank| rank + 1);
    format!("{rank} of {}: {}", winner.of, parts.join(", "))
}

fn many(count: usize, what: &str) -> String {
    match (count, what.strip_suffix("ch")) {
        (1, _) => format!("1 {what}"),
        (_, Some(_)) => format!("{count} {what}es"),
        _ => format!("{count} {what}s"),
    }
}

fn tell_action(out: &mut String, action: &Action) {
    if !action.backends.is_empty() {
        let by = action.load_balancing.as_deref().unwrap_or_default();
        section(out, &format!("Backends, their endpoints by {by}"));
        table(out, &action.backends.iter().map(backend).collect::<Vec<_>>());
    }
    if !action.limits.is_empty() {
        section(out, "Limits");
        let row = |limit: &LimitTold| vec![limit.of.clone(), format!("at most {}", limit.max), limit.over.clone()];
        table(out, &action.limits.iter().map(row).collect::<Vec<_>>());
    }
    filters(out, "Filters", &action.filters);
    for backend in &action.backends {
        filters(out, &format!("Filters of {}", cluster(backend)), &backend.filters);
    }
    if let (Some(target), Some(host)) = (&action.target, &action.host) {
        section(out, "A backend gets");
        table(out, &[vec!["target".to_owned(), target.clone()], vec!["Host".to_owned(), or_none(host).to_owned()]]);
    }
    if let Some(body) = &action.body {
        section(out, "Body");
        body.lines().for_each(|text| line(out, &format!("  {text}")));
    }
}

fn filters(out: &mut String, title: &str, filters: &[FilterTold]) {
    if !filters.is_empty() {
        section(out, title);
        table(out, &filters.iter().map(|filter| vec![filter.r#type.clone(), filter.does.clone()]).collect::<Vec<_>>());
    }
}

fn cluster(backend: &BackendTold) -> &str {
    backend.cluster.as_deref().unwrap_or("(broken)")
}

fn backend(backend: &BackendTold) -> Vec<String> {
    let mut endpoints: Vec<String> = backend
        .endpoints
        .iter()
        .map(|endpoint| match &endpoint.note {
            Some(note) => format!("{} ({note})", endpoint.address),
            None => endpoint.address.to_string(),
        })
        .collect();
    if backend.more_endpoints > 0 {
        endpoints.push(format!("and {} more", backend.more_endpoints));
    }
    let state = match (&backend.refused, backend.ready) {
        (Some(refused), _) => refused.clone(),
        (None, Some(ready)) => format!("{ready} ready"),
        (None, None) => "endpoints not known here".to_owned(),
    };
    let name = match &backend.tls {
        Some(host) => format!("{}, over TLS as {host}", cluster(backend)),
        None => cluster(backend).to_owned(),
    };
    vec![name, format!("weight {}", backend.weight), format!("{} %", backend.percent), state, endpoints.join(", ")]
}

fn decide(out: &mut String, decision: &Explanation) {
    hosts(out, decision);
    if decision.selectors.total() > 1 || decision.outcome == Outcome::NoSelector {
        let name = hostname(decision.host.hostname.as_deref());
        section(out, &format!("Selectors of {name}, in the order in which they are asked"));
        table(out, &decision.selectors.shown.iter().map(selector).collect::<Vec<_>>());
        more(out, &decision.selectors);
    }
    if decision.outcome == Outcome::NoMatch {
        let took = decision.selectors.shown.iter().find(|trial| trial.result == Trial::Took);
        let name = took.map(|trial| trial.selector.as_str()).unwrap_or_default();
        section(
            out,
            &format!(
                "Selector {name} takes the request, and none of its {} fits",
                many(decision.losers.total(), "match")
            ),
        );
    }
    if !decision.nearest.is_empty() {
        section(out, "Nearest");
        losers(out, &decision.nearest);
    }
    if decision.runners_up.total() > 0 {
        section(out, "Would fit, too, but rank lower");
        let runners_up = decision.runners_up.shown.iter();
        table(out, &runners_up.map(|other| place(&other.place, &other.because)).collect::<Vec<_>>());
        more(out, &decision.runners_up);
    }
    if decision.losers.total() > 0 {
        section(out, "Do not fit");
        losers(out, &decision.losers.shown);
        more(out, &decision.losers);
    }
}

fn hosts(out: &mut String, decision: &Explanation) {
    let host = &decision.host;
    if host.less_specific.total() > 0 {
        section(out, "Less specific hostnames, which are not asked");
        let rows = host.less_specific.shown.iter().map(|less| {
            let would = less.would_take.as_ref();
            let would = would.map(|w| format!("would take it: {} rule {} of {}", w.route, w.rule, w.selector));
            vec![less.hostname.clone(), many(less.selectors, "Selector"), would.unwrap_or_default()]
        });
        table(out, &rows.collect::<Vec<_>>());
        more(out, &host.less_specific);
    }
    if !host.nearest.is_empty() {
        section(out, "Nearest hostnames");
        let rows = host.nearest.iter();
        let rows = rows.map(|near| vec![near.hostname.clone(), format!("of {}", near.selector), near.because.clone()]);
        table(out, &rows.collect::<Vec<_>>());
    }
}

fn selector(trial: &SelectorTrial) -> Vec<String> {
    let result = match trial.result {
        Trial::Failed => {
            let reasons: Vec<String> = trial.mismatches.iter().map(ToString::to_string).collect();
            format!("no: {}", reasons.join("; "))
        }
        Trial::Took => "takes the request".to_owned(),
        Trial::NotAsked => match &trial.would_take {
            Some(would) => format!("not asked (would take it: {} rule {})", would.route, would.rule),
            None => "not asked".to_owned(),
        },
    };
    vec![trial.selector.clone(), format!("priority {}", trial.priority), many(trial.conditions, "condition"), result]
}

fn losers(out: &mut String, losers: &[Loser]) {
    table(out, &losers.iter().map(|loser| place(&loser.place, &loser.mismatch.to_string())).collect::<Vec<_>>());
}

fn place(place: &Place, why: &str) -> Vec<String> {
    let rank = place.rank.map_or_else(|| "-".to_owned(), |rank| format!("#{}", rank + 1));
    let name = format!("{} rule {} matches[{}]", place.route, place.rule, place.match_index);
    vec![rank, name, place.matching.path.clone(), why.to_owned()]
}

fn more<T>(out: &mut String, listed: &Listed<T>) {
    if listed.more > 0 {
        line(out, &format!("  and {} more; --all tells them", listed.more));
    }
}

fn section(out: &mut String, title: &str) {
    let _ = write!(out, "\n{title}\n");
}

fn line(out: &mut String, text: &str) {
    out.push_str(&plain(text.trim_end()));
    out.push('\n');
}

/// Rows in aligned columns; the last one is as wide as it is.
pub(super) fn table(out: &mut String, rows: &[Vec<String>]) {
    /// One long cell does not push the others off the screen.
    const MAX_WIDTH: usize = 48;
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).filter(|width| *width <= MAX_WIDTH).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut text = String::from(" ");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, " {cell:<width$} ");
        }
        line(out, &text);
    }
}

/// Control characters of a request must not reach the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
