//! Unique names: of tools, of arguments, of definitions.

use std::collections::HashMap;

/// Names in use, each with the next number to try for a suffix.
#[derive(Debug, Default)]
pub(crate) struct TakenNames(HashMap<String, u32>);

impl TakenNames {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Takes the name, or the name with the first free number appended. Thousands of equal names
    /// take no longer than as many different ones.
    pub(crate) fn take(&mut self, name: &str) -> String {
        let mut free = name.to_owned();
        while self.contains(&free) {
            let Some(number) = self.0.get_mut(name) else { break };
            free = format!("{name}_{number}");
            *number += 1;
        }
        self.0.insert(free.clone(), 2);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_the_first_free_number() {
        let mut names = TakenNames::default();
        for (name, expected) in
            [("a", "a"), ("a_2", "a_2"), ("a", "a_3"), ("a", "a_4"), ("a_2", "a_2_2"), ("b", "b")]
        {
            assert_eq!(names.take(name), expected);
        }
        let many = (0..200_000).map(|_| names.take("x")).last();
        assert_eq!(many.as_deref(), Some("x_200000"));
    }
}
