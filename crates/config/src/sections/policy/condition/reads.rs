//! The variables that a condition reads.

/// The members of a variable that a condition reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MemberReads {
    /// None.
    #[default]
    Nothing,
    /// These.
    Named(MemberNames),
    /// These, and the names of all, or their number.
    Keys(MemberNames),
    /// Any.
    All,
}

/// The names of members, sorted by their bytes. A condition reads few of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberNames(Vec<Box<str>>);

impl MemberNames {
    /// All of them.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    fn contains(&self, name: &[u8]) -> bool {
        if self.0.len() > FEW_NAMES {
            return self.0.binary_search_by(|one| one.as_bytes().cmp(name)).is_ok();
        }
        self.0.iter().any(|one| one.as_bytes() == name)
    }

    fn with(mut self, name: &str) -> Self {
        if let Err(place) = self.0.binary_search_by(|one| (**one).cmp(name)) {
            self.0.insert(place, name.into());
        }
        self
    }
}

/// Up to this many names are compared one after the other.
const FEW_NAMES: usize = 8;

impl MemberReads {
    /// Returns true if it reads a member.
    #[inline]
    pub fn has(&self, member: &str) -> bool {
        self.has_bytes(member.as_bytes())
    }

    /// Returns true if it reads the member with this name.
    #[inline]
    pub fn has_bytes(&self, member: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Named(names) | Self::Keys(names) => names.contains(member),
            Self::All => true,
        }
    }

    /// Returns true if it reads the names of members without their values.
    #[inline]
    pub fn has_keys(&self) -> bool {
        matches!(self, Self::Keys(_) | Self::All)
    }

    /// Returns true if it reads any member.
    #[inline]
    pub fn is_some(&self) -> bool {
        *self != Self::Nothing
    }
}

/// The variables that a condition reads, each once, in the order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConditionReads(Vec<(&'static str, MemberReads)>);

impl ConditionReads {
    /// The members of a variable that it reads.
    pub fn of(&self, variable: &str) -> &MemberReads {
        const NO_MEMBERS: &MemberReads = &MemberReads::Nothing;
        let found = self.0.iter().find(|(name, _)| *name == variable);
        found.map_or(NO_MEMBERS, |(_, reads)| reads)
    }

    /// The variables that it reads.
    #[inline]
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &MemberReads)> {
        self.0.iter().map(|(name, reads)| (*name, reads))
    }

    /// Returns true if it reads the arguments or the method of a call.
    #[inline]
    pub fn needs_call(&self) -> bool {
        self.of("arguments").is_some() || self.of("request").has("method")
    }

    /// Returns true if it reads anything but the caller's properties.
    #[inline]
    pub fn needs_element(&self) -> bool {
        ["tool", "item", "annotations"].iter().any(|name| self.of(name).is_some())
            || self.needs_call()
    }

    /// Adds the variables that another condition reads.
    pub fn extend(&mut self, other: &Self) {
        for (variable, reads) in &other.0 {
            match reads {
                MemberReads::Nothing => {}
                MemberReads::All => self.add_all(variable),
                MemberReads::Named(names) | MemberReads::Keys(names) => {
                    if reads.has_keys() {
                        self.add_keys(variable);
                    }
                    for name in names.iter() {
                        self.add_member(variable, name);
                    }
                }
            }
        }
    }

    pub(super) fn add_all(&mut self, variable: &'static str) {
        self.change(variable, |_| MemberReads::All);
    }

    pub(super) fn add_keys(&mut self, variable: &'static str) {
        self.change(variable, |reads| match reads {
            MemberReads::Nothing => MemberReads::Keys(MemberNames::default()),
            MemberReads::Named(names) | MemberReads::Keys(names) => MemberReads::Keys(names),
            MemberReads::All => MemberReads::All,
        });
    }

    pub(super) fn add_member(&mut self, variable: &'static str, member: &str) {
        self.change(variable, |reads| match reads {
            MemberReads::Nothing => MemberReads::Named(MemberNames::default().with(member)),
            MemberReads::Named(names) => MemberReads::Named(names.with(member)),
            MemberReads::Keys(names) => MemberReads::Keys(names.with(member)),
            MemberReads::All => MemberReads::All,
        });
    }

    fn change(&mut self, variable: &'static str, change: impl FnOnce(MemberReads) -> MemberReads) {
        let known = self.0.iter().position(|(name, _)| *name == variable);
        let reads = known.map(|place| self.0.remove(place).1).unwrap_or_default();
        let place = self.0.partition_point(|(name, _)| *name < variable);
        self.0.insert(place, (variable, change(reads)));
    }
}
