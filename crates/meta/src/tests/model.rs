//! A file system in a hundred lines: what the server must agree with.

use std::collections::BTreeMap;
use strake_types::ErrorKind;

pub type Answer = Result<(), ErrorKind>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Dir { parent: usize, entries: BTreeMap<String, usize> },
    File { links: u32, contents: Vec<u8> },
    Gone,
}

/// Nodes by number; 0 is the root.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: Vec<Node>,
}

impl Model {
    pub fn new() -> Self {
        Model { nodes: vec![Node::Dir { parent: 0, entries: BTreeMap::new() }] }
    }

    fn entries(&mut self, dir: usize) -> Result<&mut BTreeMap<String, usize>, ErrorKind> {
        match &mut self.nodes[dir] {
            Node::Dir { entries, .. } => Ok(entries),
            Node::File { .. } => Err(ErrorKind::NotDirectory),
            Node::Gone => Err(ErrorKind::NotFound),
        }
    }

    pub fn find(&mut self, dir: usize, name: &str) -> Result<usize, ErrorKind> {
        self.entries(dir)?.get(name).copied().ok_or(ErrorKind::NotFound)
    }

    fn is_dir(&self, node: usize) -> bool {
        matches!(self.nodes[node], Node::Dir { .. })
    }

    /// Makes a file or directory; it gets the next number.
    pub fn make(&mut self, dir: usize, name: &str, directory: bool) -> Answer {
        let number = self.nodes.len();
        let entries = self.entries(dir)?;
        if entries.contains_key(name) {
            return Err(ErrorKind::Exists);
        }
        entries.insert(name.into(), number);
        self.nodes.push(match directory {
            true => Node::Dir { parent: dir, entries: BTreeMap::new() },
            false => Node::File { links: 1, contents: Vec::new() },
        });
        Ok(())
    }

    fn drop_name(&mut self, node: usize) -> Answer {
        match &mut self.nodes[node] {
            Node::Dir { entries, .. } if !entries.is_empty() => return Err(ErrorKind::NotEmpty),
            Node::File { links, .. } if *links > 1 => *links -= 1,
            node => *node = Node::Gone,
        }
        Ok(())
    }

    pub fn remove(&mut self, dir: usize, name: &str, directory: bool) -> Answer {
        let node = self.find(dir, name)?;
        match (self.is_dir(node), directory) {
            (true, false) => return Err(ErrorKind::IsDirectory),
            (false, true) => return Err(ErrorKind::NotDirectory),
            _ => self.drop_name(node)?,
        }
        self.entries(dir)?.remove(name);
        Ok(())
    }

    pub fn link(&mut self, node: usize, dir: usize, name: &str) -> Answer {
        if self.entries(dir)?.contains_key(name) {
            return Err(ErrorKind::Exists);
        }
        match &mut self.nodes[node] {
            Node::Dir { .. } => return Err(ErrorKind::NotPermitted),
            Node::Gone => return Err(ErrorKind::NotFound),
            Node::File { links, .. } => *links += 1,
        }
        self.entries(dir)?.insert(name.into(), node);
        Ok(())
    }

    fn lies_within(&self, dir: usize, ancestor: usize) -> bool {
        let mut at = dir;
        loop {
            match &self.nodes[at] {
                _ if at == ancestor => return true,
                Node::Dir { parent, .. } if at != 0 => at = *parent,
                _ => return false,
            }
        }
    }

    pub fn rename(&mut self, from: (usize, &str), to: (usize, &str), exchange: bool) -> Answer {
        self.entries(from.0)?;
        self.entries(to.0)?;
        let moved = self.find(from.0, from.1)?;
        let other = self.entries(to.0)?.get(to.1).copied();
        if other.is_none() && exchange {
            return Err(ErrorKind::NotFound);
        }
        let bends = from.0 != to.0;
        if bends && self.is_dir(moved) && self.lies_within(to.0, moved) {
            return Err(ErrorKind::Invalid);
        }
        let Some(other) = other else {
            self.entries(from.0)?.remove(from.1);
            return self.put(moved, to);
        };
        if bends && self.is_dir(other) && self.lies_within(from.0, other) {
            return Err(if exchange { ErrorKind::Invalid } else { ErrorKind::NotEmpty });
        }
        if other == moved {
            return Ok(());
        }
        if exchange {
            self.put(other, from)?;
            return self.put(moved, to);
        }
        match (self.is_dir(moved), self.is_dir(other)) {
            (true, false) => return Err(ErrorKind::NotDirectory),
            (false, true) => return Err(ErrorKind::IsDirectory),
            _ => self.drop_name(other)?,
        }
        self.entries(from.0)?.remove(from.1);
        self.put(moved, to)
    }

    fn put(&mut self, node: usize, at: (usize, &str)) -> Answer {
        self.entries(at.0)?.insert(at.1.into(), node);
        if let Node::Dir { parent, .. } = &mut self.nodes[node] {
            *parent = at.0;
        }
        Ok(())
    }

    pub fn write(&mut self, node: usize, offset: usize, data: &[u8]) -> Answer {
        match &mut self.nodes[node] {
            Node::File { contents, .. } => {
                let end = offset + data.len();
                contents.resize(contents.len().max(end), 0);
                contents[offset..end].copy_from_slice(data);
                Ok(())
            }
            Node::Dir { .. } => Err(ErrorKind::Invalid),
            Node::Gone => Err(ErrorKind::Stale),
        }
    }

    pub fn truncate(&mut self, node: usize, length: usize) -> Answer {
        match &mut self.nodes[node] {
            Node::File { contents, .. } => {
                contents.resize(length, 0);
                Ok(())
            }
            Node::Dir { .. } => Err(ErrorKind::IsDirectory),
            Node::Gone => Err(ErrorKind::Stale),
        }
    }
}
