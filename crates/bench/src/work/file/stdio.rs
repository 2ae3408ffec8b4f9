//! `fread`, `fwrite`, `getc` and `putc`: through a buffer of the program.
//!
//! A buffered reader and writer of the standard library do what C's stdio does: what is as long as
//! the buffer goes past it, anything shorter is collected.

use super::transfer::{Record, Transfer, Trouble, close};
use super::{Direction, Pass};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

/// The buffer that C's stdio takes where nobody chooses one.
const PAGE: usize = 4096;

/// `fread` and `fwrite` of whole records: iozone makes the buffer as long as a record.
pub fn blocks(pass: &Pass, file: File) -> io::Result<Box<dyn Transfer>> {
    open(pass, file, false)
}

/// `getc` and `putc`: as bonnie++'s per-character tests.
pub fn characters(pass: &Pass, file: File) -> io::Result<Box<dyn Transfer>> {
    open(pass, file, true)
}

fn open(pass: &Pass, mut file: File, characters: bool) -> io::Result<Box<dyn Transfer>> {
    file.seek(SeekFrom::Start(pass.start))?;
    let record = Record::new(pass)?;
    let capacity = if characters { PAGE } else { record.buffer.len().max(PAGE) };
    Ok(match pass.direction {
        Direction::Write => {
            let stream = BufWriter::with_capacity(capacity, file);
            Box::new(Output { stream, record, characters })
        }
        _ => {
            let stream = BufReader::with_capacity(capacity, file);
            Box::new(Input { stream, record, characters })
        }
    })
}

struct Output {
    stream: BufWriter<File>,
    record: Record,
    characters: bool,
}

impl Transfer for Output {
    fn record(&mut self, offset: u64) -> Result<(), Trouble> {
        let bytes = self.record.filled(offset);
        if !self.characters {
            return Ok(self.stream.write_all(bytes)?);
        }
        for byte in bytes {
            self.stream.write_all(black_box(std::slice::from_ref(byte)))?;
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), Trouble> {
        Ok(self.stream.flush()?)
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        Ok(self.stream.get_ref().sync_all()?)
    }

    fn close(self: Box<Self>) -> Result<(), Trouble> {
        // What an interrupted pass has left in the buffer is nobody's.
        close(self.stream.into_parts().0)
    }
}

struct Input {
    stream: BufReader<File>,
    record: Record,
    characters: bool,
}

impl Transfer for Input {
    fn record(&mut self, offset: u64) -> Result<(), Trouble> {
        if self.characters {
            for byte in self.record.buffer.iter_mut() {
                self.stream.read_exact(black_box(std::slice::from_mut(byte)))?;
            }
        } else {
            self.stream.read_exact(&mut self.record.buffer)?;
        }
        self.record.check(offset)
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        Ok(self.stream.get_ref().sync_all()?)
    }

    fn close(self: Box<Self>) -> Result<(), Trouble> {
        close(self.stream.into_inner())
    }
}
