//! Where lines end up. Only the writer's thread waits here.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether a file was moved away.
const LOOK: Duration = Duration::from_secs(1);
/// How long a sink that takes nothing at the moment and does not make its writer wait is left alone.
const PAUSE: Duration = Duration::from_millis(10);

/// A sink by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The end of a file.
    File(PathBuf),
}

/// A sink.
pub(super) struct Sink {
    file: File,
    /// Of a file: where it should be.
    place: Option<Place>,
    /// What is missing of the last line that was begun.
    torn: Vec<u8>,
    is_failing: bool,
}

struct Place {
    path: PathBuf,
    /// Device and number of the file.
    identity: (u64, u64),
    looked: Instant,
}

// === impl Sink ===

impl Sink {
    /// Opens it. Fails if a file cannot be written.
    pub(super) fn open(output: &Output) -> io::Result<Self> {
        match output {
            // Not through the library's own, which keep lines and have a lock.
            Output::Stdout => Ok(Self::of(io::stdout().as_fd().try_clone_to_owned()?.into())),
            Output::Stderr => Ok(Self::of(io::stderr().as_fd().try_clone_to_owned()?.into())),
            Output::File(path) => {
                let file = append(path)?;
                let place = Place { path: path.clone(), identity: identity(&file)?, looked: Instant::now() };
                Ok(Self::new(file, Some(place)))
            }
        }
    }

    /// Something that is open.
    pub(super) fn of(file: File) -> Self {
        Self::new(file, None)
    }

    fn new(file: File, place: Option<Place>) -> Self {
        Self { file, place, torn: Vec::new(), is_failing: false }
    }

    /// Opens a file anew; where that fails the lines go where they went before.
    pub(super) fn reopen(&mut self) {
        let Some(place) = &mut self.place else { return };
        match append(&place.path).and_then(|file| Ok((identity(&file)?, file))) {
            Ok((identity, file)) => {
                place.identity = identity;
                // Its rest would make no sense in the other file.
                let _ = self.finish_torn();
                self.torn.clear();
                self.file = file;
            }
            Err(error) => tracing::error!(%error, file = %place.path.display(), "the access log cannot be opened anew"),
        }
    }

    /// Writes whole lines, and waits as long as it takes. Gives how many were lost because the sink failed.
    pub(super) fn write(&mut self, bytes: &[u8]) -> u64 {
        if self.place.as_mut().is_some_and(Place::is_moved) {
            self.reopen();
        }
        let written = self.finish_torn().and_then(|()| {
            put(&mut self.file, bytes).map_err(|(error, done)| {
                let end = line_end(bytes, done);
                self.torn.extend_from_slice(&bytes[done..end]);
                (error, end)
            })
        });
        match written {
            Ok(()) => {
                if self.is_failing {
                    tracing::info!("the access log is written again");
                }
                self.is_failing = false;
                0
            }
            Err((error, end)) => {
                // Once, not for each buffer.
                if !self.is_failing {
                    tracing::error!(%error, "the access log cannot be written, lines are dropped");
                }
                self.is_failing = true;
                memchr::memchr_iter(b'\n', &bytes[end..]).count() as u64
            }
        }
    }

    /// Completes a line that was begun before the sink failed. An error comes with how much of the next bytes is done.
    fn finish_torn(&mut self) -> Result<(), (io::Error, usize)> {
        match put(&mut self.file, &self.torn) {
            Ok(()) => {
                self.torn.clear();
                Ok(())
            }
            Err((error, done)) => {
                self.torn.drain(..done);
                Err((error, 0))
            }
        }
    }
}

/// Where the line that the first `done` bytes end in ends.
fn line_end(bytes: &[u8], done: usize) -> usize {
    if done == 0 || bytes[done - 1] == b'\n' {
        return done;
    }
    bytes[done..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| done + at + 1)
}

/// Writes all of it; an error comes with how much was.
fn put(file: &mut impl Write, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write(&bytes[done..]) {
            Ok(0) => return Err((ErrorKind::WriteZero.into(), done)),
            Ok(written) => done += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Who gave us the descriptor has it for something else, too.
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park_timeout(PAUSE),
            Err(error) => return Err((error, done)),
        }
    }
    Ok(())
}

fn append(path: &Path) -> io::Result<File> {
    // Not for everybody: lines tell of clients.
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

// === impl Place ===

impl Place {
    /// Whether another file, or none, is where this one was. Looks once in a while.
    fn is_moved(&mut self) -> bool {
        if self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        match std::fs::metadata(&self.path) {
            Ok(there) => (there.dev(), there.ino()) != self.identity,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}
