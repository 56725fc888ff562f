//! Filters in words.

use serde::{Deserialize, Serialize};

use crate::ir::{Allowed, Cors, Filter, HeaderEdit, Origins, PathRewrite, QueryEdit};

/// A filter of the rule or backend that takes a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterTold {
    /// Its type in the Route, such as `URLRewrite`.
    pub r#type: String,
    /// What it does, for people.
    pub does: String,
}

/// The filters in their order.
pub(super) fn told(filters: &[Filter]) -> Vec<FilterTold> {
    let one = |filter: &Filter| {
        let (kind, does) = match filter {
            Filter::Cors(cors) => ("CORS", allows(cors)),
            Filter::RequestHeaders(edit) => ("RequestHeaderModifier", header_edit(edit)),
            Filter::RequestQuery(edit) => ("RequestQueryModifier", query_edit(edit)),
            Filter::Rewrite { hostname, path } => {
                let host = hostname.iter().map(|name| format!("Host becomes {name}"));
                ("URLRewrite", host.chain(path.iter().map(rewrite)).collect::<Vec<_>>().join("; "))
            }
            Filter::Mirror(mirror) => {
                let share = f64::from(mirror.numerator) * 100.0 / f64::from(mirror.denominator);
                ("RequestMirror", format!("copies {share} % to {}", mirror.cluster))
            }
            Filter::ResponseHeaders(edit) => ("ResponseHeaderModifier", header_edit(edit)),
        };
        FilterTold { r#type: kind.to_owned(), does }
    };
    filters.iter().map(one).collect()
}

fn rewrite(path: &PathRewrite) -> String {
    match path {
        PathRewrite::Full(new) => format!("the path becomes {new}"),
        PathRewrite::Prefix(new) if matches!(&**new, "" | "/") => "the matched prefix goes".to_owned(),
        PathRewrite::Prefix(new) => format!("the matched prefix becomes {new}"),
        PathRewrite::Regex(regex) => format!("what {} matches becomes {}", regex.pattern(), regex.substitution()),
    }
}

fn header_edit(edit: &HeaderEdit) -> String {
    let fields = |verb: &'static str, fields: &[(http::HeaderName, http::HeaderValue)]| {
        let field = |(name, value): &(http::HeaderName, http::HeaderValue)| {
            format!("{verb} {name}: {}", String::from_utf8_lossy(value.as_bytes()))
        };
        fields.iter().map(field).collect::<Vec<_>>()
    };
    let removes = edit.remove.iter().map(|name| format!("remove {name}"));
    removes.chain(fields("set", &edit.set)).chain(fields("add", &edit.add)).collect::<Vec<_>>().join("; ")
}

fn query_edit(edit: &QueryEdit) -> String {
    let removes = edit.remove.iter().map(|name| format!("remove {name}"));
    let sets = edit.set.iter().map(|(_, pair)| format!("set {pair}"));
    removes.chain(sets).chain(edit.add.iter().map(|pair| format!("add {pair}"))).collect::<Vec<_>>().join("; ")
}

fn allows(cors: &Cors) -> String {
    let origins = match &cors.origins {
        Origins::All => "*".to_owned(),
        Origins::Some(origins) => origins.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let mut parts = vec![format!("origins {origins}")];
    for (what, allowed) in [("methods", &cors.methods), ("headers", &cors.headers)] {
        match allowed {
            Allowed::None => {}
            Allowed::All => parts.push(format!("{what} *")),
            Allowed::Listed(list) => parts.push(format!("{what} {}", String::from_utf8_lossy(list.as_bytes()))),
        }
    }
    if let Some(exposed) = &cors.expose {
        parts.push(format!("exposes {}", String::from_utf8_lossy(exposed.as_bytes())));
    }
    if cors.credentials {
        parts.push("credentials".to_owned());
    }
    parts.push(format!("kept for {} s", cors.max_age));
    parts.join("; ")
}
