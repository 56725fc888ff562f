//! Maps of fields that have been used, for the heads to come: each thread keeps a few, so that most heads need no memory of
//! their own for one.

use std::cell::RefCell;

use http::HeaderMap;

/// Maps that a thread keeps.
const MOST: usize = 32;
/// Fields that a map may have room for to be kept.
const MOST_FIELDS: usize = 64;
/// Fields that a new map has room for: more than most heads have, with those that are added on the way.
const ROOM: usize = 24;

thread_local! {
    static SPARE: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// An empty map with room for `fields`.
pub fn take(fields: usize) -> HeaderMap {
    let mut map = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    // Room for all that a kept one may have, else it would grow again and again.
    map.reserve(fields.max(ROOM));
    map
}

/// Keeps a map that is not needed any more.
pub fn give(mut map: HeaderMap) {
    if (1..=MOST_FIELDS).contains(&map.capacity()) {
        map.clear();
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < MOST {
                spare.push(map);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_map_comes_back_empty_and_those_of_huge_heads_do_not() {
        let mut map = take(3);
        map.insert("a", HeaderValue::from_static("b"));
        let capacity = map.capacity();
        give(map);
        let map = take(1);
        assert_eq!((map.len(), map.capacity()), (0, capacity));
        give(take(1000));
        assert!(take(1).capacity() <= MOST_FIELDS * 2);
        for _ in 0..2 * MOST {
            give(HeaderMap::with_capacity(1));
        }
        assert_eq!(SPARE.with_borrow(Vec::len), MOST);
        give(map);
    }
}
