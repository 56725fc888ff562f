//! The time of answers.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The present second as a `Date` field (RFC 9110, section 6.6.1), written once a second.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Date(RefCell<Option<(u64, HeaderValue)>>);

impl Date {
    /// The field's value; `None` where the clock stands before 1970 or after 9999.
    pub(super) fn now(&self) -> Option<HeaderValue> {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let mut kept = self.0.borrow_mut();
        match &*kept {
            Some((same, value)) if *same == second => Some(value.clone()),
            _ => {
                let value = written(second)?;
                Some(kept.insert((second, value)).1.clone())
            }
        }
    }
}

fn written(second: u64) -> Option<HeaderValue> {
    let timestamp = Timestamp::from_second(second.try_into().ok()?).ok()?;
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&timestamp).ok()?;
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_form_of_the_standard() {
        assert_eq!(written(784_111_777).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
        let date = Date::default();
        assert_eq!(date.now().unwrap().len(), 29);
    }
}
