//! The kinds of traffic.

use std::fmt;
use std::str::FromStr;

/// How requests of a kind look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// GET on connections that are kept.
    Keepalive,
    /// GET, a connection each.
    Connection,
    /// POST of a body that is sent in parts with pauses, on connections that are kept.
    Upload,
    /// GET of an answer that is read to its end, however long, on connections that are kept.
    Stream,
    /// GET over HTTP/2.
    H2,
    /// A unary gRPC call with an empty message.
    Grpc,
    /// A WebSocket that is held and carries a message a second, which has to come back.
    Websocket,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Self; 7] =
        [Self::Keepalive, Self::Connection, Self::Upload, Self::Stream, Self::H2, Self::Grpc, Self::Websocket];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keepalive => "keepalive",
            Self::Connection => "connection",
            Self::Upload => "upload",
            Self::Stream => "stream",
            Self::H2 => "h2",
            Self::Grpc => "grpc",
            Self::Websocket => "websocket",
        }
    }

    /// Whether connections are held, with no part in the rate.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Websocket)
    }

    /// Whether it is sent over HTTP/2.
    pub(super) const fn is_h2(self) -> bool {
        matches!(self, Self::H2 | Self::Grpc)
    }
}

/// Traffic of one kind: `KIND[=PATH][*WEIGHT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The kind.
    pub shape: Shape,
    /// Path and query; those of the URL if absent.
    pub path: Option<String>,
    /// Its part in the rate, against the other kinds' parts; of `websocket`, how many are held.
    pub weight: u32,
}

/// Text that names no traffic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form KIND[=PATH][*WEIGHT], KIND one of {names}", names = names())]
pub struct InvalidTraffic(String);

fn names() -> String {
    Shape::ALL.map(Shape::as_str).join(", ")
}

impl FromStr for Traffic {
    type Err = InvalidTraffic;

    fn from_str(text: &str) -> Result<Self, InvalidTraffic> {
        let invalid = || InvalidTraffic(text.to_owned());
        // A `*` is allowed in a path: only a number behind the last one is a weight.
        let weighted = text.rsplit_once('*').and_then(|(rest, weight)| Some((rest, weight.parse().ok()?)));
        let (rest, weight) = weighted.unwrap_or((text, 1));
        let (kind, path) = rest.split_once('=').map_or((rest, None), |(kind, path)| (kind, Some(path)));
        let shape = Shape::ALL.into_iter().find(|shape| shape.as_str() == kind).ok_or_else(invalid)?;
        if weight == 0 || path.is_some_and(|path| !path.starts_with('/')) {
            return Err(invalid());
        }
        Ok(Self { shape, path: path.map(str::to_owned), weight })
    }
}

impl fmt::Display for Traffic {
    /// The kind, and the path where it has one of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shape.as_str())?;
        self.path.iter().try_for_each(|path| write!(f, "={path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_read() {
        let read = |text: &str| text.parse::<Traffic>().map(|t| (t.shape, t.path, t.weight));
        assert_eq!(read("keepalive"), Ok((Shape::Keepalive, None, 1)));
        assert_eq!(read("upload*3"), Ok((Shape::Upload, None, 3)));
        assert_eq!(read("stream=/a*b?c=d*2"), Ok((Shape::Stream, Some("/a*b?c=d".to_owned()), 2)));
        assert_eq!(read("websocket=/ws"), Ok((Shape::Websocket, Some("/ws".to_owned()), 1)));
        for bad in ["", "http", "keepalive*0", "keepalive=x", "stream="] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
