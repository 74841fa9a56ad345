//! The differing lines of two texts, by Myers' greedy algorithm ("An O(ND) Difference Algorithm",
//! 1986).
//!
//! The crate `similar` compares words, bytes and generic sequences, too, and took 8 seconds of
//! everyone's first build. Here the work is bounded: definitions that servers changed are compared
//! as well.

use std::ops::Range;

use LineChange::{Added, Kept, Removed};

/// A line of two texts that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineChange {
    /// In both texts, at these indices.
    Kept { before: usize, after: usize },
    /// Only in the text before, at this index.
    Removed(usize),
    /// Only in the text after, at this index.
    Added(usize),
}

/// Returns all lines of two texts in their order, removed ones before added ones at each place. Of
/// texts with more than [`MAX_EDITS`] differences, only beginning and end are compared.
pub(super) fn compare_lines(before: &[&str], after: &[&str]) -> Vec<LineChange> {
    let pairs = before.iter().zip(after);
    let start = pairs.take_while(|(one, other)| one == other).count();
    let (old, new) = (before.get(start..).unwrap_or(&[]), after.get(start..).unwrap_or(&[]));
    let pairs = old.iter().rev().zip(new.iter().rev());
    let end = pairs.take_while(|(one, other)| one == other).count();
    let old = old.get(..old.len().saturating_sub(end)).unwrap_or(&[]);
    let new = new.get(..new.len().saturating_sub(end)).unwrap_or(&[]);
    let middle = common_lines(old, new).into_iter().map(|(x, y)| (start + x, start + y));
    let kept = (0..start).map(|at| (at, at)).chain(middle);
    let (x, y) = (start + old.len(), start + new.len());
    let kept = kept.chain((0..end).map(|at| (x + at, y + at)));
    let (mut changes, mut next) = (Vec::new(), (0, 0));
    for (x, y) in kept {
        changes.extend((next.0..x).map(Removed));
        changes.extend((next.1..y).map(Added));
        changes.push(Kept { before: x, after: y });
        next = (x + 1, y + 1);
    }
    changes.extend((next.0..before.len()).map(Removed));
    changes.extend((next.1..after.len()).map(Added));
    changes
}

/// Returns two versions of a text in the unified format, with two lines of context; nothing if they
/// are the same.
pub(super) fn write_unified(name: &str, before: &str, after: &str) -> String {
    let old: Vec<_> = before.split_inclusive('\n').collect();
    let new: Vec<_> = after.split_inclusive('\n').collect();
    let changes = compare_lines(&old, &new);
    let hunks = find_hunks(&changes);
    let mut text = String::new();
    if !hunks.is_empty() {
        text.extend(["--- ", name, "\n+++ ", name, "\n"]);
    }
    for hunk in hunks {
        let (passed, rest) = changes.split_at(hunk.start);
        let shown = rest.get(..hunk.len()).unwrap_or(rest);
        let is_old = |change: &&LineChange| !matches!(change, Added(_));
        let is_new = |change: &&LineChange| !matches!(change, Removed(_));
        let removed = hunk_range(passed.iter().filter(is_old), shown.iter().filter(is_old));
        let added = hunk_range(passed.iter().filter(is_new), shown.iter().filter(is_new));
        text.extend(["@@ -", &removed, " +", &added, " @@\n"]);
        for change in shown {
            let (sign, line) = match *change {
                Kept { before, .. } => (" ", old.get(before)),
                Removed(at) => ("-", old.get(at)),
                Added(at) => ("+", new.get(at)),
            };
            let line = line.copied().unwrap_or_default();
            let end = if line.ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
            text.extend([sign, line, end]);
        }
    }
    text
}

/// Returns the ranges of lines that are within [`CONTEXT_LINES`] of a change.
fn find_hunks(changes: &[LineChange]) -> Vec<Range<usize>> {
    let mut hunks: Vec<Range<usize>> = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        if matches!(change, Kept { .. }) {
            continue;
        }
        let start = at.saturating_sub(CONTEXT_LINES);
        let end = changes.len().min(at + 1 + CONTEXT_LINES);
        match hunks.last_mut().filter(|last| start <= last.end) {
            Some(last) => last.end = end,
            None => hunks.push(start..end),
        }
    }
    hunks
}

/// Returns the range of a hunk in one of the texts: the number of its first line, and their count
/// unless it is one.
fn hunk_range(passed: impl Iterator, shown: impl Iterator) -> String {
    match (passed.count(), shown.count()) {
        (passed, 1) => (passed + 1).to_string(),
        (passed, 0) => format!("{passed},0"),
        (passed, count) => format!("{},{count}", passed + 1),
    }
}

/// Returns the indices of a longest common subsequence; none if there are too many differences.
fn common_lines(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let mut rounds: Vec<EditRound> = Vec::new();
    for edits in 0..=MAX_EDITS.min(old.len() + new.len()) {
        let round = EditRound::follow(rounds.last(), edits, ComparedLines { old, new });
        let end = Some((old.len(), new.len()));
        let found = round.furthest.iter().position(|point| *point == end);
        rounds.push(round);
        if let Some(diagonal) = found {
            return trace_back(&rounds, diagonal);
        }
    }
    Vec::new()
}

/// The furthest points that a number of edits reaches, one for each second diagonal. A point is the
/// number of lines of both texts that are passed.
struct EditRound {
    furthest: Vec<Option<(usize, usize)>>,
}

/// The lines that are compared.
#[derive(Clone, Copy)]
struct ComparedLines<'a> {
    old: &'a [&'a str],
    new: &'a [&'a str],
}

/// The edit that begins a diagonal of a round.
struct EditStep {
    /// The index of its diagonal in the round before.
    diagonal: usize,
    /// The point after the edit.
    point: (usize, usize),
}

impl EditRound {
    fn follow(previous: Option<&Self>, edits: usize, lines: ComparedLines<'_>) -> Self {
        let furthest = |diagonal| {
            let (x, y) = EditStep::best(previous, diagonal)?.point;
            if x > lines.old.len() || y > lines.new.len() {
                return None;
            }
            let rest = lines.old.iter().skip(x).zip(lines.new.iter().skip(y));
            let same = rest.take_while(|(one, other)| one == other).count();
            Some((x + same, y + same))
        };
        Self { furthest: (0..=edits).map(furthest).collect() }
    }
}

impl EditStep {
    /// Returns the edit that leads furthest: a line that is removed or one that is added, from the
    /// diagonals beside this one.
    fn best(previous: Option<&EditRound>, diagonal: usize) -> Option<Self> {
        let Some(previous) = previous else { return Some(Self { diagonal: 0, point: (0, 0) }) };
        let point = |diagonal: usize| previous.furthest.get(diagonal).copied().flatten();
        let removed = diagonal.checked_sub(1).and_then(|diagonal| {
            let (x, y) = point(diagonal)?;
            Some(Self { diagonal, point: (x + 1, y) })
        });
        let added = point(diagonal).map(|(x, y)| Self { diagonal, point: (x, y + 1) });
        match (removed, added) {
            (Some(removed), Some(added)) if added.point.0 > removed.point.0 => Some(added),
            (Some(removed), _) => Some(removed),
            (None, added) => added,
        }
    }
}

/// Returns the common lines on the way to a diagonal of the last round.
fn trace_back(rounds: &[EditRound], mut diagonal: usize) -> Vec<(usize, usize)> {
    let mut kept = Vec::new();
    for (at, round) in rounds.iter().enumerate().rev() {
        let previous = at.checked_sub(1).and_then(|at| rounds.get(at));
        let end = round.furthest.get(diagonal).copied().flatten();
        let (Some((end, _)), Some(step)) = (end, EditStep::best(previous, diagonal)) else { break };
        let (x, y) = step.point;
        kept.extend((0..end.saturating_sub(x)).rev().map(|same| (x + same, y + same)));
        diagonal = step.diagonal;
    }
    kept.reverse();
    kept
}

/// The most differences of two texts that are compared line by line.
const MAX_EDITS: usize = 1_000;
/// Unchanged lines that are shown before and after a change.
const CONTEXT_LINES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies the changes to check them: both texts follow from them.
    fn compare(before: &[&str], after: &[&str]) -> Vec<LineChange> {
        let changes = compare_lines(before, after);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for change in &changes {
            match *change {
                Kept { before: x, after: y } => {
                    assert_eq!(before[x], after[y]);
                    old.push(x);
                    new.push(y);
                }
                Removed(x) => old.push(x),
                Added(y) => new.push(y),
            }
        }
        assert!(old.into_iter().eq(0..before.len()), "{changes:?}");
        assert!(new.into_iter().eq(0..after.len()), "{changes:?}");
        changes
    }

    /// Returns the fewest edits, by dynamic programming.
    fn fewest_edits(before: &[&str], after: &[&str]) -> usize {
        let mut row: Vec<usize> = (0..=after.len()).collect();
        for (x, one) in before.iter().enumerate() {
            let mut next = vec![x + 1];
            for (y, other) in after.iter().enumerate() {
                let edited = row[y + 1].min(next[y]) + 1;
                next.push(if one == other { row[y].min(edited) } else { edited });
            }
            row = next;
        }
        row[after.len()]
    }

    #[test]
    fn the_fewest_lines_change() {
        // All texts of up to five lines of two kinds.
        let texts = (0_usize..6).flat_map(|length| {
            (0..1_usize << length).map(move |bits| {
                (0..length).map(|at| if bits >> at & 1 == 0 { "a" } else { "b" }).collect()
            })
        });
        let texts: Vec<Vec<&str>> = texts.collect();
        for before in &texts {
            for after in &texts {
                let changes = compare(before, after);
                let edits = changes.iter().filter(|it| !matches!(it, Kept { .. })).count();
                assert_eq!(edits, fewest_edits(before, after), "{before:?} {after:?}");
            }
        }
    }

    #[test]
    fn texts_with_too_many_differences_are_compared_at_their_ends() {
        let lines = |letter: &str| -> Vec<String> {
            let middle = (0..2_000).map(|at| format!("{letter}{}", at * usize::from(at % 2 == 0)));
            [vec!["first".to_owned()], middle.collect(), vec!["last".to_owned()]].concat()
        };
        let (before, after) = (lines("x"), lines("y"));
        let before: Vec<_> = before.iter().map(String::as_str).collect();
        let after: Vec<_> = after.iter().map(String::as_str).collect();
        let changes = compare(&before, &after);
        let kept: Vec<_> = changes.iter().filter(|it| matches!(it, Kept { .. })).collect();
        assert_eq!(kept.len(), 2, "{kept:?}");
    }

    #[test]
    fn changes_are_shown_with_their_context() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12";
        let after = "1\n2\n3\nnew\n5\n6\n7\n8\n9\n11\n12\n";
        let expected = "\
            --- f\n+++ f\n\
            @@ -2,5 +2,5 @@\n 2\n 3\n-4\n+new\n 5\n 6\n\
            @@ -8,5 +8,4 @@\n 8\n 9\n-10\n 11\n-12\n\\ No newline at end of file\n+12\n";
        assert_eq!(write_unified("f", before, after), expected);
        assert_eq!(write_unified("f", "", "a\n"), "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n");
        assert_eq!(write_unified("f", "a\n", ""), "--- f\n+++ f\n@@ -1 +0,0 @@\n-a\n");
        assert_eq!(write_unified("f", "a", "a"), "");
    }
}
