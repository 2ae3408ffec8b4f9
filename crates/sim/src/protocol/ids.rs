//! Numbers, and sets of members.

/// Most members of a group.
pub const MEMBERS: usize = 3;
/// Clients that write. Who reads does not matter: reads begin and end in one step.
pub const CLIENTS: usize = 2;
/// Epochs are smaller than this.
pub const EPOCHS: usize = 6;

/// Version of the group, from 1; 0 is that of a member that has just started.
pub type Epoch = u8;
/// What a primary gives to each write it forwards, from 1, ascending within its epoch.
pub type Number = u8;
/// A client's own number of a request, from 1.
pub type Seq = u8;
/// Contents of the one range that is modelled. Each write has its own value; 0 is that before all.
pub type Value = u8;

/// Other numbers for the members: `names[old]` is the new one.
pub type Names = [usize; MEMBERS];

/// A set of members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Members(u8);

impl Members {
    /// The first so many members.
    pub fn first_of(count: usize) -> Self {
        Self((1 << count) - 1)
    }

    /// Only this one.
    pub fn only(member: usize) -> Self {
        Self(1 << member)
    }

    /// Whether this member is one of them.
    pub fn has(self, member: usize) -> bool {
        self.0 & (1 << member) != 0
    }

    /// These and another one.
    pub fn with(self, member: usize) -> Self {
        Self(self.0 | 1 << member)
    }

    /// These but one.
    pub fn without(self, member: usize) -> Self {
        Self(self.0 & !(1 << member))
    }

    /// Those in either set.
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not in the other set.
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of these are in the other set.
    pub fn within(self, other: Self) -> bool {
        self.minus(other).is_empty()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS).filter(move |&member| self.has(member))
    }

    /// The same members by other numbers.
    pub fn renamed(self, names: &Names) -> Self {
        self.iter().fold(Self::default(), |renamed, member| renamed.with(names[member]))
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
