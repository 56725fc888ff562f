//! What decides between two matches that both fit.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Key, PathKey, Step};

/// A line of the order of matches, the first in which two of them differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Criterion {
    /// Exact, then Regex, then Pattern and Prefix.
    PathType,
    /// Of two Regex the one with the longer source.
    RegexLength,
    /// Segment by segment: a literal, then `{name}` or `*`, then the end of a Pattern, of a Prefix, then `**`.
    PathSegments,
    /// One that names methods.
    Methods,
    /// More headers.
    Headers,
    /// More headers that are compared for equality.
    ExactHeaders,
    /// More query parameters.
    Query,
    /// More other conditions.
    Conditions,
    /// The older Route.
    RouteAge,
    /// The Route whose `namespace/name` sorts first.
    RouteName,
    /// The rule that stands first in its Route.
    RuleOrder,
    /// The match that stands first in its rule.
    MatchOrder,
}

impl Key<'_> {
    /// What decides for `self` and against `other`, in words; `None` for a match and itself.
    pub(in crate::routing) fn beats(&self, other: &Self) -> Option<(Criterion, String)> {
        if let Some(decided) = self.path.beats(&other.path) {
            return Some(decided);
        }
        if self.any_method != other.any_method {
            return Some((Criterion::Methods, "the winner names methods, this one none".to_owned()));
        }
        let counts = [
            (Criterion::Headers, self.headers.0, other.headers.0, "headers"),
            (Criterion::ExactHeaders, self.exact_headers.0, other.exact_headers.0, "headers of type Exact"),
            (Criterion::Query, self.query.0, other.query.0, "query parameters"),
            (Criterion::Conditions, self.conditions.0, other.conditions.0, "conditions"),
        ];
        if let Some((criterion, own, its, what)) = counts.into_iter().find(|(_, own, its, _)| own != its) {
            return Some((criterion, format!("{what}: the winner has {own}, this one {its}")));
        }
        if self.route.created != other.route.created {
            return Some((Criterion::RouteAge, format!("Route {} is older", self.route.object)));
        }
        if self.route.object != other.route.object {
            return Some((Criterion::RouteName, format!("as old, and {} sorts first", self.route.object)));
        }
        let (criterion, what) = if self.rule == other.rule {
            (Criterion::MatchOrder, "the winner stands first in the rule")
        } else {
            (Criterion::RuleOrder, "the winner's rule stands first in the Route")
        };
        (self.rule != other.rule || self.matching != other.matching).then(|| (criterion, what.to_owned()))
    }
}

impl PathKey<'_> {
    fn beats(&self, other: &Self) -> Option<(Criterion, String)> {
        match (self, other) {
            (Self::Exact(_), Self::Exact(_)) => None,
            (Self::Regex(own), Self::Regex(its)) if own == its => None,
            (Self::Regex(own), Self::Regex(its)) => Some((
                Criterion::RegexLength,
                format!("the winner's regular expression has {} bytes, this one {}", own.0, its.0),
            )),
            (Self::Steps(own), Self::Steps(its)) => {
                let at = own.iter().zip(its).position(|(own, its)| own != its)?;
                let (own, its) = (own.get(at)?, its.get(at)?);
                let what = format!("path segment {}: the winner has {own}, this one {its}", at + 1);
                Some((Criterion::PathSegments, what))
            }
            (own, its) => Some((Criterion::PathType, format!("{} comes before {}", own.kind(), its.kind()))),
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Exact(_) => "a path of type Exact",
            Self::Regex(_) => "a Regex",
            Self::Steps(_) => "Pattern and Prefix",
        }
    }
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => write!(f, "the literal {text:?}"),
            Self::One => f.write_str("any segment"),
            Self::PatternEnd => f.write_str("the end of a Pattern"),
            Self::PrefixEnd => f.write_str("the end of a Prefix"),
            Self::Rest => f.write_str("\"**\""),
        }
    }
}
