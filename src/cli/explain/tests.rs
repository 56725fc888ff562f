use clap::Parser as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::cli::{Cli, Command};

fn args(line: &[&str]) -> Result<Args, clap::Error> {
    match Cli::try_parse_from([&["lockgate", "explain"], line].concat())?.command {
        Command::Explain(args) => Ok(*args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_line_is_a_question() {
    let line = ["GET", "http://x.test/a", "-H", "a: 1", "--header", "b: 2", "--client-ip", "::1", "--at", "t", "--all"];
    let args = args(&line).unwrap();
    let question = args.question();
    assert_eq!((&*question.method, &*question.url), ("GET", "http://x.test/a"));
    assert_eq!(question.headers, ["a: 1", "b: 2"]);
    assert_eq!((question.client_ip.as_deref(), question.at.as_deref(), question.all), (Some("::1"), Some("t"), true));
    assert_eq!((args.live, args.output), (None, Form::Text));
}

#[test]
fn live_takes_its_address_behind_an_equals_sign() {
    let at = |line: &[&str]| args(line).unwrap().live.map(|address| address.to_string());
    assert_eq!(at(&["--live", "GET", "x.test/"]).as_deref(), Some(operator::PORT));
    assert_eq!(at(&["GET", "x.test/", "--live=127.0.0.1:9"]).as_deref(), Some("127.0.0.1:9"));
    assert!(args(&["GET"]).is_err());
}

#[tokio::test]
async fn manifests_are_asked() {
    let ask = |url: &'static str| async move {
        let args = args(&["GET", url, "--manifests", "src/explain/testdata"]).unwrap();
        let (answer, notes) = answer(&args).await.unwrap();
        assert_eq!(notes, Vec::<String>::new());
        (answer.is_served(), answer.result.status)
    };
    assert_eq!(ask("http://shop.example.com/cart").await, (true, None));
    assert_eq!(ask("http://shop.example.com/old").await, (true, Some(301)));
    assert_eq!(ask("http://shop.example.com/nothing").await, (false, Some(404)));
    assert_eq!(ask("http://shop.example.com/idle").await, (false, Some(503)));
    assert_eq!(ask("http://shop.example.com/broken").await, (false, Some(500)));
}

#[tokio::test]
async fn what_cannot_be_asked_is_told() {
    let ask = |line: &'static [&'static str]| async move {
        let error = answer(&args(line).unwrap()).await.unwrap_err();
        format!("{error:#}")
    };
    let error = ask(&["GET", "x.test/", "--manifests", "nowhere"]).await;
    assert!(error.starts_with("cannot read the manifests at nowhere: "), "{error}");
    let error = ask(&["GET", "x.test/", "--live", "--manifests", "src"]).await;
    assert_eq!(error, "--live asks a gateway that runs, --manifests files: name one of them");
    let error = ask(&["GET", "x.test/", "--context", "c", "--manifests", "src"]).await;
    assert_eq!(error, "manifests at src and a cluster: name one of them");
    let error = ask(&["GET", "x.test/", "--manifests", "src/explain/testdata", "--at", "noon"]).await;
    assert!(error.starts_with("at: \"noon\" is not an RFC 3339 time"), "{error}");
}

/// A gateway's operator port that answers once.
async fn operator_port(status: &'static str, body: String) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = String::new();
        let mut buffer = [0; 4096];
        while !request.ends_with('}') {
            let count = stream.read(&mut buffer).await.unwrap();
            request.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        request
    });
    (address, asked)
}

#[tokio::test]
async fn a_gateway_is_asked_at_its_operator_port() {
    let files = args(&["GET", "http://shop.example.com/cart", "--manifests", "src/explain/testdata"]).unwrap();
    let (known, _) = answer(&files).await.unwrap();
    let (address, asked) = operator_port("200 OK", serde_json::to_string(&known).unwrap()).await;
    let (told, _) =
        answer(&args(&["GET", "http://shop.example.com/cart", &format!("--live={address}")]).unwrap()).await.unwrap();
    assert_eq!(told.decision, known.decision);
    assert!(told.source.ends_with(&format!(" by {address}")), "{}", told.source);
    let request = asked.await.unwrap();
    assert!(request.starts_with("POST /explain?o=json HTTP/1.1\r\nhost: localhost\r\n"), "{request}");
    assert!(request.contains("\"url\":\"http://shop.example.com/cart\""), "{request}");
}

#[tokio::test]
async fn what_a_gateway_refuses_is_told() {
    let (address, _) = operator_port("400 Bad Request", "{\"error\": \"url: has no host\"}".to_owned()).await;
    let line = format!("--live={address}");
    let error = answer(&args(&["GET", "http:///", &line]).unwrap()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the gateway at {address} answers 400 Bad Request: url: has no host"));
    let error = answer(&args(&["GET", "http:///", &line]).unwrap()).await.unwrap_err();
    assert!(format!("{error:#}").starts_with(&format!("the gateway at {address}: cannot be reached: ")), "{error:#}");
}
