//! Clients that make work and no requests: each is sent away, and others do not notice.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::raw::{self, Raw, frame};
use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends `bytes` again and again until the gateway ends the connection; gives the reason that it gave. `most` is how often
/// they may be sent.
async fn sent_away(gateway: &Gateway, most: u32, mut bytes: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    let (mut read, mut write) = Raw::connect(gateway).await.stream.into_split();
    let writing = async {
        for turn in 0..most {
            if write.write_all(&bytes(turn)).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut all = Vec::new();
    tokio::select! {
        read = tokio::time::timeout(PATIENCE, read.read_to_end(&mut all)) => drop(read.expect("never sent away")),
        () = writing => unreachable!(),
    }
    let mut client = Raw::connect(gateway).await;
    // Others are served.
    client.write(&raw::get(1)).await;
    client.next(raw::HEADERS).await;
    last_goaway(&all)
}

fn last_goaway(mut bytes: &[u8]) -> Option<u32> {
    let mut code = None;
    while bytes.len() >= 9 {
        let length = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        let Some(payload) = bytes.get(9..9 + length) else { break };
        if bytes[3] == raw::GOAWAY {
            code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        bytes = &bytes[9 + length..];
    }
    code
}

fn refused(gateway: &Gateway, reason: &str) -> bool {
    gateway.metrics().contains(&format!("lockgate_requests_refused_total{{reason=\"{reason}\"}} 1\n"))
}

#[tokio::test]
async fn frames_that_carry_nothing() {
    let ping = frame(raw::PING, 0, 0, &[0; 8]);
    let settings = frame(raw::SETTINGS, 0, 0, &[]);
    let acknowledged = frame(raw::PING, raw::ACK, 0, &[7; 8]);
    let priority = frame(raw::PRIORITY, 0, 1, &[0, 0, 0, 3, 1]);
    let window = frame(raw::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    let unknown = frame(0xbb, 0, 0, b"what");
    for (what, bytes) in [
        ("ping", ping),
        ("settings", settings),
        ("pong", acknowledged),
        ("priority", priority),
        ("window update", window),
        ("unknown", unknown),
    ] {
        let (_origin, gateway) = answering(OK).await;
        let code = sent_away(&gateway, 1_000_000, |_| bytes.repeat(100)).await;
        assert_eq!(code, Some(raw::ENHANCE_YOUR_CALM), "{what}");
        gateway.wait_for(|g| refused(g, "flood")).await;
    }
}

#[tokio::test]
async fn empty_data() {
    let origin = Origin::start(Reply::never()).await;
    let gateway = gateway_with(&origin, |_| {}).await;
    let mut client = Raw::connect(&gateway).await;
    client.write(&frame(raw::HEADERS, raw::END_HEADERS, 1, &raw::block(&raw::POST))).await;
    client.write(&frame(raw::DATA, 0, 1, &[]).repeat(2000)).await;
    assert_eq!(client.goaway().await.unwrap().1, raw::ENHANCE_YOUR_CALM);
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0 && refused(g, "flood")).await;
}

/// CVE-2023-44487: requests that are reset as soon as they are sent.
#[tokio::test]
async fn rapid_reset() {
    for together in [1, 10, 100] {
        let origin = Origin::start(Reply::never()).await;
        let quick = Origin::start(Reply::always(OK)).await;
        let slow = rule("/slow", &[(&origin, 1)]);
        let gateway = Gateway::start(vec![selector(vec![slow, rule("/", &[(&quick, 1)])])]).await;
        let mut slow = raw::GET;
        slow[2].1 = "/slow";
        let block = raw::block(&slow);
        let attack = |turn: u32| {
            let streams = (0..together).map(|n| (turn * together + n) * 2 + 1);
            let begun =
                streams.clone().flat_map(|n| frame(raw::HEADERS, raw::END_STREAM | raw::END_HEADERS, n, &block));
            let reset = streams.flat_map(|n| frame(raw::RST_STREAM, 0, n, &8_u32.to_be_bytes()));
            begun.chain(reset).collect()
        };
        let code = sent_away(&gateway, 10_000_000, attack).await;
        assert_eq!(code, Some(raw::ENHANCE_YOUR_CALM), "{together} at a time");
        gateway.wait_for(|g| refused(g, "flood")).await;
        assert!(origin.requests().len() <= 500, "{} reached the backend", origin.requests().len());
        gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    }
}

/// CVE-2025-8671: requests followed by what makes the gateway reset them.
#[tokio::test]
async fn made_you_reset() {
    let overflow = |stream: u32| frame(raw::WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]);
    let nothing = |stream: u32| frame(raw::WINDOW_UPDATE, 0, stream, &[0; 4]);
    let late = |stream: u32| frame(raw::DATA, 0, stream, b"after the end");
    let itself = |stream: u32| {
        let [a, b, c, d] = stream.to_be_bytes();
        frame(raw::PRIORITY, 0, stream, &[a, b, c, d, 0])
    };
    let kinds: [&dyn Fn(u32) -> Vec<u8>; 4] = [&overflow, &nothing, &late, &itself];
    for (number, provoke) in kinds.into_iter().enumerate() {
        let origin = Origin::start(Reply::never()).await;
        let quick = Origin::start(Reply::always(OK)).await;
        let slow = rule("/slow", &[(&origin, 1)]);
        let gateway = Gateway::start(vec![selector(vec![slow, rule("/", &[(&quick, 1)])])]).await;
        let mut slow = raw::GET;
        slow[2].1 = "/slow";
        let block = raw::block(&slow);
        let mut client = Raw::connect(&gateway).await;
        let mut sent = 0;
        let mut stream = 1;
        while sent < 20_000 {
            let begun = frame(raw::HEADERS, raw::END_STREAM | raw::END_HEADERS, stream, &block);
            if !client.write(&[begun, provoke(stream)].concat()).await {
                break;
            }
            stream += 2;
            sent += 1;
            tokio::task::yield_now().await;
        }
        let code = client.goaway().await;
        assert!(matches!(code, None | Some((_, raw::ENHANCE_YOUR_CALM | 1 | 5))), "kind {number}: {code:?}");
        assert!(sent < 20_000, "kind {number} was never sent away");
        assert!(origin.requests().len() <= 1500, "{} reached the backend", origin.requests().len());
        gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    }
}

/// RUSTSEC-2024-0332: a header block without an end.
#[tokio::test]
async fn continuations_without_end() {
    let (origin, gateway) = answering(OK).await;
    let field = raw::block(&[("x-field", "value")]);
    let code = sent_away(&gateway, 100_000, |turn| match turn {
        0 => frame(raw::HEADERS, raw::END_STREAM, 1, &raw::block(&raw::GET)),
        _ => frame(raw::CONTINUATION, 0, 1, &field),
    })
    .await;
    assert!(matches!(code, Some(raw::ENHANCE_YOUR_CALM)), "{code:?}");
    assert_eq!(origin.requests().len(), 1);
}

/// A few bytes on the wire that become very many: a large field in the table, referred to again and again.
#[tokio::test]
async fn a_bomb_of_references() {
    let (origin, gateway) = answering(OK).await;
    let mut client = Raw::connect(&gateway).await;
    let mut block = raw::block(&raw::GET);
    // With indexing: `x` and 3 900 bytes (RFC 7541, sections 6.2.1 and 5.1).
    block.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0xbd, 0x1d]);
    block.extend_from_slice(&[b'v'; 3900]);
    // The newest entry of the table, 12 000 times: 47 million bytes.
    block.extend_from_slice(&[0xbe; 12_000]);
    client.write(&frame(raw::HEADERS, raw::END_STREAM | raw::END_HEADERS, 1, &block)).await;
    assert_eq!(client.goaway().await.unwrap().1, raw::ENHANCE_YOUR_CALM);
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn a_head_over_the_limit_is_431_and_costs_its_stream_only() {
    let (origin, gateway) = answering(OK).await;
    let mut client = Client::connect(&gateway).await;
    let large = "x".repeat(40_000);
    let response = client.head(request("GET", "/", &[("x-large", &large)])).await;
    assert_eq!(response.status(), 431);
    assert_eq!(client.get("/").await.head.status, 200);
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn clients_that_give_up_now_and_then_are_not_attackers() {
    let slow = Origin::start(Reply::never()).await;
    let quick = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/slow", &[(&slow, 1)]), rule("/", &[(&quick, 1)])])]).await;
    let mut client = Client::connect(&gateway).await;
    for turn in 0..300 {
        let (response, mut stream) = client.begin(request("GET", "/slow", &[]), true).await;
        slow.wait_for_requests(turn + 1).await;
        stream.send_reset(h2::Reason::CANCEL);
        drop(response);
        assert_eq!(client.get("/").await.body, "ok");
    }
    assert!(!refused(&gateway, "flood"));
}

#[tokio::test]
async fn who_pings_with_its_requests_is_not_an_attacker() {
    let (_origin, gateway) = answering(OK).await;
    let mut client = Raw::connect(&gateway).await;
    for turn in 0..1000 {
        client.write(&raw::get(2 * turn + 1)).await;
        client.settle().await;
        client.write(&frame(raw::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 2])).await;
    }
    assert!(!refused(&gateway, "flood"));
}
