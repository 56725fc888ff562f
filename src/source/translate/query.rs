//! Changes to query parameters.

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::api::{QueryModifier, QueryParameter};
use crate::ir::QueryEdit;

/// All but the unreserved characters of RFC 3986, section 2.3: no reader takes what is left for anything else.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The changes, with what is to be written encoded.
pub(super) fn query_edit(modifier: &QueryModifier) -> QueryEdit {
    QueryEdit {
        remove: modifier.remove.iter().map(|name| name.as_str().into()).collect(),
        set: modifier.set.iter().map(|parameter| (parameter.name.as_str().into(), pair(parameter))).collect(),
        add: modifier.add.iter().map(pair).collect(),
    }
}

fn pair(parameter: &QueryParameter) -> Arc<str> {
    let encode = |text| utf8_percent_encode(text, RESERVED);
    format!("{}={}", encode(&parameter.name), encode(&parameter.value)).into()
}
