use std::fs::File;
use std::io::{PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::Value;

use super::queue::CAPACITY;
use super::sink::Sink;
use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn line(format: Format, write: impl FnOnce(&mut Line<'_>)) -> String {
    let mut out = Vec::new();
    write(&mut Line::new(format, &mut out));
    let (before, after) = format.frame();
    String::from_utf8([before, &out[1..], after].concat()).unwrap()
}

fn one(format: Format, value: &[u8]) -> String {
    line(format, |line| line.text(&Key::new(format, "v"), value))
}

/// The bytes that a value of a line in text stands for.
fn read_text(line: &str) -> Vec<u8> {
    let value = line.strip_prefix("v=").unwrap().strip_suffix('\n').unwrap();
    let Some(quoted) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else {
        assert!(!value.contains([' ', '"', '=', '\\']) && !value.is_empty(), "{value}");
        return value.as_bytes().to_vec();
    };
    let mut bytes = Vec::new();
    let mut chars = quoted.chars();
    while let Some(char) = chars.next() {
        assert_ne!(char, '"', "a quote inside: {line}");
        if char != '\\' {
            bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        match chars.next().unwrap() {
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'x' => {
                let digits: String = chars.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            'u' => {
                let digits: String = chars.by_ref().take_while(|&char| char != '}').skip(1).collect();
                let char = char::from_u32(u32::from_str_radix(&digits, 16).unwrap()).unwrap();
                bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
            itself => bytes.push(u8::try_from(itself).unwrap()),
        }
    }
    bytes
}

/// Bytes as clients send them who mean no good.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..6),
        "[a-z/\"\\\\={} \\n\\r\\t]{0,20}".prop_map(String::into_bytes),
        "\\PC{0,4}".prop_map(String::into_bytes),
        Just("\u{85}\u{2028}\u{2029}\u{7f}\u{9b}".as_bytes().to_vec()),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn json_gives_back_the_text(value in hostile(), more in hostile()) {
        let line = line(Format::Json, |line| {
            line.text(&Key::new(Format::Json, "v"), &value);
            line.joined(&Key::new(Format::Json, "joined"), &[&value, b"/", &more]);
            line.group(&Key::new(Format::Json, "group"), |line| {
                line.text(&Key::member(Format::Json, "group", "x-more"), &more);
            });
            line.number(&Key::new(Format::Json, "n"), 7);
        });
        let read: Value = serde_json::from_str(&line).unwrap();
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        prop_assert_eq!(&read["v"], &lossy(&value));
        prop_assert_eq!(&read["joined"], &format!("{}/{}", lossy(&value), lossy(&more)));
        prop_assert_eq!(&read["group"]["x-more"], &lossy(&more));
        prop_assert_eq!(&read["n"], 7);
        prop_assert!(is_one_line(&line));
    }

    #[test]
    fn text_gives_back_the_bytes(value in hostile()) {
        let line = one(Format::Text, &value);
        prop_assert_eq!(read_text(&line), value);
        prop_assert!(is_one_line(&line));
    }

    #[test]
    fn numbers_are_written_as_they_are(number: u64, micros: u64) {
        let mut out = Vec::new();
        decimal(number, &mut out);
        prop_assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        let key = Key::new(Format::Json, "ms");
        let line = line(Format::Json, |line| line.millis(&key, Duration::from_micros(micros)));
        prop_assert_eq!(line, format!("{{\"ms\":{}.{:03}}}\n", micros / 1000, micros % 1000));
    }
}

/// Whether nothing in it ends a line, for whatever reads it.
fn is_one_line(line: &str) -> bool {
    let inside = line.strip_suffix('\n').unwrap();
    !inside.chars().any(|char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}'))
}

#[test]
fn lines_have_the_form_of_their_format() {
    for (format, expected) in [
        (
            Format::Json,
            "{\"a\":\"x y\",\"b\":1,\"c\":true,\"t\":\"12:00\",\"h\":{\"x-a\":\"1\",\"x-b\":\"\"},\"d\":1.002}\n",
        ),
        (Format::Text, "a=\"x y\" b=1 c=true t=12:00 h.x-a=1 h.x-b=\"\" d=1.002\n"),
    ] {
        let key = |name| Key::new(format, name);
        let written = line(format, |line| {
            line.text(&key("a"), b"x y");
            line.number(&key("b"), 1);
            line.flag(&key("c"), true);
            line.token(&key("t"), |out| out.extend_from_slice(b"12:00"));
            line.group(&key("none"), |_| {});
            line.group(&key("h"), |line| {
                line.text(&Key::member(format, "h", "x-a"), b"1");
                line.text(&Key::member(format, "h", "x-b"), b"");
            });
            line.millis(&key("d"), Duration::from_micros(1002));
        });
        assert_eq!(written, expected);
    }
    assert_eq!(one(Format::Text, b"\x1b[2J\xff\\"), "v=\"\\x1b[2J\\xff\\\\\"\n");
    assert_eq!(one(Format::Json, b"\x1b[2J\xff\\"), "{\"v\":\"\\u001b[2J\u{fffd}\\\\\"}\n");
}

/// A pipe as a sink.
fn pipe() -> (PipeReader, Sink) {
    let (reader, writer) = std::io::pipe().unwrap();
    (reader, Sink::of(File::from(OwnedFd::from(writer))))
}

fn push(pen: &Pen, text: &str) {
    pen.push(Format::Text, format!(" {text}").as_bytes());
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn lines_of_all_pens_arrive_whole_and_in_the_order_of_each() {
    const LINES: usize = 5000;
    let (reader, sink) = pipe();
    let log = AccessLog::write_to(sink, 64 << 20).unwrap();
    let (written, dropped) = (log.written(), log.dropped());
    let read = std::thread::spawn(move || std::io::read_to_string(reader).unwrap());
    std::thread::scope(|scope| {
        for pen in 0..3 {
            let log = &log;
            scope.spawn(move || {
                let own = log.pen();
                (0..LINES).for_each(|number| push(&own, &format!("{pen} {number} {}", "x".repeat(number % 200))));
                own.finish();
            });
        }
    });
    assert_eq!(log.flush(PATIENCE), 0);
    assert_eq!((written(), dropped()), (3 * LINES as u64, 0));
    drop(log);
    let text = read.join().unwrap();
    let mut next = [0; 3];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (pen, number): (usize, usize) = (words[0].parse().unwrap(), words[1].parse().unwrap());
        assert_eq!((number, words[2].len()), (next[pen], number % 200));
        next[pen] += 1;
    }
    assert_eq!(next, [LINES; 3]);
}

#[test]
fn a_pipe_that_nobody_reads_costs_whole_lines_which_are_counted() {
    const LINES: usize = 20_000;
    let (mut reader, sink) = pipe();
    let log = AccessLog::write_to(sink, 4 * CAPACITY).unwrap();
    let (written, dropped) = (log.written(), log.dropped());
    let pen = log.pen();
    for number in 0..LINES {
        push(&pen, &format!("{number} {}", "x".repeat(90)));
    }
    let lost = dropped();
    assert!(lost > LINES as u64 / 2, "{lost}");
    assert!(log.flush(Duration::from_millis(1)) > 0);
    // Whoever reads again gets what was kept, and the lines of now.
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    until("the writer goes on", || log.flush(PATIENCE) == 0);
    push(&pen, "the last");
    pen.finish();
    assert_eq!(log.flush(PATIENCE), 0);
    assert_eq!(written() + dropped(), LINES as u64 + 1);
    drop((log, pen));
    let text = read.join().unwrap();
    assert_eq!(text.lines().count() as u64, LINES as u64 + 1 - lost);
    assert!(text.lines().all(|line| line.ends_with(&"x".repeat(90)) || line == "the last"));
    assert!(text.ends_with("the last\n"));
}

#[test]
fn a_sink_that_has_ended_costs_lines_and_not_the_writer() {
    let (reader, sink) = pipe();
    let log = AccessLog::write_to(sink, 1 << 20).unwrap();
    let dropped = log.dropped();
    drop(reader);
    let pen = log.pen();
    for lines in 1..4 {
        push(&pen, "a line");
        pen.finish();
        assert_eq!(log.flush(PATIENCE), 0);
        assert_eq!(dropped(), lines);
    }
}

#[test]
fn a_line_longer_than_a_buffer_arrives() {
    let (reader, sink) = pipe();
    let log = AccessLog::write_to(sink, 1 << 20).unwrap();
    let read = std::thread::spawn(move || std::io::read_to_string(reader).unwrap());
    let pen = log.pen();
    push(&pen, "first");
    push(&pen, &"x".repeat(2 * CAPACITY));
    push(&pen, "last");
    pen.finish();
    drop((log, pen));
    let lengths: Vec<usize> = read.join().unwrap().lines().map(str::len).collect();
    assert_eq!(lengths, [5, 2 * CAPACITY, 4]);
}

#[test]
fn a_file_that_was_moved_is_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    std::fs::write(&path, "was there\n").unwrap();
    let log = AccessLog::start(&Output::File(path.clone()), 1 << 20).unwrap();
    let pen = log.pen();
    let say = |text: &str| {
        push(&pen, text);
        pen.finish();
        assert_eq!(log.flush(PATIENCE), 0);
    };
    say("one");
    std::fs::rename(&path, &moved).unwrap();
    log.reopen();
    say("two");
    assert_eq!((read(&moved), read(&path)), ("was there\none\n".into(), "two\n".into()));
    // The same without being told.
    std::fs::rename(&path, &moved).unwrap();
    until("it is seen", || {
        say("again");
        path.exists()
    });
    assert!(read(&path).lines().all(|line| line == "again"));
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Output::File(dir.path().join("none").join("access.log"));
    assert!(AccessLog::start(&missing, 1 << 20).is_err());
}

#[tokio::test(start_paused = true)]
async fn lines_do_not_wait_for_a_full_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let log = AccessLog::start(&Output::File(path.clone()), 1 << 20).unwrap();
    let pen = log.pen();
    let talk = async {
        for _ in 0..3 {
            push(&pen, "a line");
            tokio::time::sleep(Duration::from_millis(150)).await;
            assert_eq!(log.flush(PATIENCE), 0);
        }
    };
    tokio::select! {
        () = pen.run() => unreachable!("it runs for ever"),
        () = talk => {}
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a line\n".repeat(3));
}

#[test]
fn a_disk_that_is_full_tears_no_line() {
    // What is written there fails for want of space.
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let mut sink = Sink::of(full);
    assert_eq!(sink.write(b"one\ntwo\n"), 2);
}
