//! Which variables a condition reads.

use std::collections::{BTreeMap, BTreeSet};

/// Which members of a variable a condition reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MemberReads {
    /// None.
    #[default]
    Nothing,
    /// These.
    Named(BTreeSet<Box<str>>),
    /// These, and the names of all, or their number.
    Keys(BTreeSet<Box<str>>),
    /// Any.
    All,
}

impl MemberReads {
    /// Whether it reads a member.
    pub fn has(&self, member: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Named(names) | Self::Keys(names) => names.contains(member),
            Self::All => true,
        }
    }

    /// Whether it reads the names of members whose values it does not read.
    pub fn has_keys(&self) -> bool {
        matches!(self, Self::Keys(_) | Self::All)
    }

    /// Whether it reads any member.
    pub fn is_some(&self) -> bool {
        *self != Self::Nothing
    }
}

/// Which variables a condition reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConditionReads(BTreeMap<&'static str, MemberReads>);

impl ConditionReads {
    /// Which members of a variable it reads.
    pub fn of(&self, variable: &str) -> &MemberReads {
        const NOTHING: &MemberReads = &MemberReads::Nothing;
        self.0.get(variable).unwrap_or(NOTHING)
    }

    /// The variables that it reads.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &MemberReads)> {
        self.0.iter().map(|(name, reads)| (*name, reads))
    }

    /// Whether it reads what is known of a call alone: its arguments and its method.
    pub fn needs_call(&self) -> bool {
        self.of("arguments").is_some() || self.of("request").has("method")
    }

    /// Whether it reads anything but what is known of the caller.
    pub fn needs_element(&self) -> bool {
        ["tool", "item", "annotations"].iter().any(|name| self.of(name).is_some())
            || self.needs_call()
    }

    /// Adds what another condition reads.
    pub fn extend(&mut self, other: &Self) {
        for (variable, reads) in &other.0 {
            match reads {
                MemberReads::Nothing => {}
                MemberReads::All => self.add_all(variable),
                MemberReads::Named(names) | MemberReads::Keys(names) => {
                    if reads.has_keys() {
                        self.add_keys(variable);
                    }
                    for name in names {
                        self.add_member(variable, name);
                    }
                }
            }
        }
    }

    pub(super) fn add_all(&mut self, variable: &'static str) {
        self.0.insert(variable, MemberReads::All);
    }

    pub(super) fn add_keys(&mut self, variable: &'static str) {
        let reads = self.0.entry(variable).or_default();
        *reads = match std::mem::take(reads) {
            MemberReads::Nothing => MemberReads::Keys(BTreeSet::new()),
            MemberReads::Named(names) | MemberReads::Keys(names) => MemberReads::Keys(names),
            MemberReads::All => MemberReads::All,
        };
    }

    pub(super) fn add_member(&mut self, variable: &'static str, member: &str) {
        match self.0.entry(variable).or_default() {
            MemberReads::All => {}
            MemberReads::Named(names) | MemberReads::Keys(names) => {
                names.insert(member.into());
            }
            nothing @ MemberReads::Nothing => {
                *nothing = MemberReads::Named(BTreeSet::from([member.into()]));
            }
        }
    }
}
