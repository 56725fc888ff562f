//! Mirrors of a rule: references that cost their requests nothing when they are broken.

use std::sync::Arc;

use crate::api::reason::INVALID;
use crate::api::{self, FilterType};
use crate::ir::{Cluster, Filter, Mirror};

use super::World;
use super::backends::{self, Speech};
use super::report::{Field, Report};

/// The mirrors of a rule whose backends can be used. The others are told in `resolved` and left out: their rule serves
/// (Gateway API, `HTTPRequestMirrorFilter`).
pub(super) fn mirrors(
    filters: &[api::Filter],
    namespace: &str,
    world: &impl World,
    rule: &Field<'_>,
    (accepted, resolved): (&mut Report, &mut Report),
    clusters: &mut Vec<Arc<Cluster>>,
) -> Vec<Filter> {
    let mut result = Vec::new();
    for (index, filter) in filters.iter().enumerate() {
        if filter.r#type != FilterType::RequestMirror {
            continue;
        }
        let entry = rule.entry("filters", index);
        let field = entry.member("requestMirror");
        let Some(mirror) = &filter.request_mirror else {
            accepted.add(INVALID, &field, "is required with this type");
            continue;
        };
        let share = share(mirror, &field, accepted);
        let cluster = backends::cluster(&mirror.backend, (namespace, Speech::Http), world);
        match (cluster, share) {
            (Ok(cluster), Some((numerator, denominator))) => {
                result.push(Filter::Mirror(Mirror { cluster: cluster.id.clone(), numerator, denominator }));
                clusters.push(Arc::new(cluster));
            }
            (Ok(_), None) => {}
            (Err(problem), _) => problem.tell(&field.member("backend"), resolved),
        }
    }
    result
}

fn share(mirror: &api::RequestMirror, field: &Field<'_>, report: &mut Report) -> Option<(u32, u32)> {
    match (mirror.percent, mirror.fraction) {
        (None, None) => Some((1, 1)),
        (Some(percent), None) if percent <= 100 => Some((percent, 100)),
        (None, Some(share)) if share.numerator <= share.denominator && share.denominator > 0 => {
            Some((share.numerator, share.denominator))
        }
        (Some(_), Some(_)) => {
            report.add(INVALID, field, "takes percent or fraction, not both");
            None
        }
        (Some(percent), None) => {
            report.add(INVALID, &field.member("percent"), format!("{percent} is more than 100"));
            None
        }
        (None, Some(_)) => {
            report.add(INVALID, &field.member("fraction"), "is more than the whole, or of nothing");
            None
        }
    }
}
