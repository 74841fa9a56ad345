//! Space for each value of arguments in a text of bounded length.

use crate::json_text::{push_raw, push_text};

use super::describe_bytes;
use super::texts::{show_text, shown_len};
use super::tree::ArgumentTree;

/// A value, and the space that it takes in full.
pub(super) struct Layout<'a> {
    value: &'a ArgumentTree<'a>,
    size: usize,
    parts: Vec<LayoutPart<'a>>,
}

/// An element of a list or a map.
struct LayoutPart<'a> {
    name: Option<&'a str>,
    layout: Layout<'a>,
}

impl<'a> Layout<'a> {
    pub(super) fn new(value: &'a ArgumentTree<'a>) -> Self {
        let part = |name, value| LayoutPart { name, layout: Self::new(value) };
        let parts: Vec<_> = match value {
            ArgumentTree::List(items) => items.iter().map(|item| part(None, item)).collect(),
            ArgumentTree::Map(members) => {
                members.iter().map(|(name, value)| part(Some(&**name), value)).collect()
            }
            _ => Vec::new(),
        };
        let own = match value {
            ArgumentTree::Word(word) => word.len(),
            ArgumentTree::Number(number) => number.len(),
            ArgumentTree::Text(text) => shown_len(text) + 2,
            ArgumentTree::List(_) | ArgumentTree::Map(_) => 2,
        };
        let size = parts.iter().map(|part| part.overhead() + part.layout.size).sum::<usize>() + own;
        Self { value, size, parts }
    }

    /// Returns the space in which each part shows something of its value.
    pub(super) fn least_size(&self) -> usize {
        let parts = self.parts.iter();
        parts.map(|part| part.overhead() + part.layout.size.min(MIN_VALUE_SPACE)).sum::<usize>() + 2
    }

    /// Appends the value in about `most` bytes. Returns true if the value is complete.
    pub(super) fn write_value(&self, most: usize, out: &mut Vec<u8>) -> bool {
        match self.value {
            ArgumentTree::Word(word) => push_raw(out, word),
            ArgumentTree::Number(number) if number.len() <= most => push_raw(out, number),
            ArgumentTree::Number(number) => push_text(out, &show_text(number, most)),
            ArgumentTree::Text(text) => push_text(out, &show_text(text, most.saturating_sub(2))),
            ArgumentTree::List(_) => return self.write_parts("[]", most, out),
            ArgumentTree::Map(_) => return self.write_parts("{}", most, out),
        }
        true
    }

    fn write_parts(&self, brackets: &str, most: usize, out: &mut Vec<u8>) -> bool {
        let (open, close) = brackets.split_at(1);
        let overhead = self.parts.iter().map(LayoutPart::overhead).sum::<usize>() + 2;
        let share = share_of(&self.parts, most.saturating_sub(overhead));
        push_raw(out, open);
        let fits = self.size <= most || share >= MIN_VALUE_SPACE;
        if fits {
            write_all(&self.parts, share.max(MIN_VALUE_SPACE), out);
        }
        let has_all = fits || self.write_ends(most, out);
        push_raw(out, close);
        has_all
    }

    /// Writes the first and the last parts, and a mark in place of the omitted ones. Returns true
    /// if none is omitted.
    fn write_ends(&self, most: usize, out: &mut Vec<u8>) -> bool {
        let half = most.saturating_sub(MARK_SIZE) / 2;
        let needs = |part: &LayoutPart<'_>| part.overhead() + part.layout.size.min(MIN_VALUE_SPACE);
        let first = count_within(half, self.parts.iter().map(needs)).max(1).min(self.parts.len());
        let count = self.parts.len() - first;
        let last = count_within(half, self.parts.iter().rev().map(needs)).max(1).min(count);
        let (first, others) = self.parts.split_at(first);
        let (others, last) = others.split_at(count - last);
        write_all(first, MIN_VALUE_SPACE, out);
        push_raw(out, if count == 0 { "" } else { "," });
        if others.is_empty() {
            write_all(last, MIN_VALUE_SPACE, out);
            return true;
        }
        let mut left_out = Vec::new();
        for (place, part) in others.iter().enumerate() {
            push_raw(&mut left_out, if place == 0 { "" } else { "," });
            if let Some(name) = part.name {
                push_text(&mut left_out, name);
                push_raw(&mut left_out, ":");
            }
            part.layout.value.write_compact(&mut left_out);
        }
        let mark = format!("⟨{} more, {}⟩", others.len(), describe_bytes(&left_out));
        if others.iter().any(|part| part.name.is_some()) {
            push_raw(out, "\"⟨…⟩\":");
        }
        push_text(out, &mark);
        push_raw(out, ",");
        write_all(last, MIN_VALUE_SPACE, out);
        false
    }
}

impl LayoutPart<'_> {
    /// Returns the space of the name and the punctuation.
    fn overhead(&self) -> usize {
        self.name.map_or(1, |name| shown_len(name).min(MAX_NAME) + 4)
    }
}

fn write_all(parts: &[LayoutPart<'_>], share: usize, out: &mut Vec<u8>) {
    for (place, part) in parts.iter().enumerate() {
        push_raw(out, if place == 0 { "" } else { "," });
        if let Some(name) = part.name {
            push_text(out, &show_text(name, MAX_NAME));
            push_raw(out, ":");
        }
        let share = share.min(part.layout.size);
        part.layout.write_value(share, out);
    }
}

/// Returns the largest share of each part with which all of them fit. Large parts get the space
/// that small parts leave.
fn share_of(parts: &[LayoutPart<'_>], mut room: usize) -> usize {
    let mut sizes: Vec<_> = parts.iter().map(|part| part.layout.size).collect();
    sizes.sort_unstable();
    for (place, size) in sizes.iter().enumerate() {
        let share = room / (sizes.len() - place);
        if *size > share {
            return share;
        }
        room -= size;
    }
    usize::MAX
}

/// Counts how many of these sizes fit in sequence.
fn count_within(most: usize, sizes: impl Iterator<Item = usize>) -> usize {
    let mut sum = 0_usize;
    sizes
        .take_while(|size| {
            sum = sum.saturating_add(*size);
            sum <= most
        })
        .count()
}

/// Minimum space in which a value shows its beginning and end, its size and its SHA-256.
const MIN_VALUE_SPACE: usize = 160;
/// Space of a mark in place of several parts.
const MARK_SIZE: usize = 120;
/// Maximum bytes of a name that is shown in full.
const MAX_NAME: usize = 160;
