//! The paths that a file names, which show its uses of other modules.

use super::sources::Source;

/// Returns every other module that a file names, with the line.
pub fn uses(file: &Source) -> Vec<(usize, String)> {
    let own = file.module();
    let mut found: Vec<_> = paths(file)
        .into_iter()
        .filter_map(|(line, path)| Some((line, path.into_iter().next()?)))
        .filter(|(_, used)| *used != own)
        .collect();
    found.dedup();
    found
}

/// Returns every path that a file names by `crate`, `super` or `self`, from the root of its crate,
/// with the line on which it begins.
pub fn paths(file: &Source) -> Vec<(usize, Vec<String>)> {
    let code = file.code();
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| is_word(c) || c == ':') {
                continue;
            }
            let (base, rest) = match start {
                "crate::" => (Vec::new(), &code[at + start.len()..]),
                _ => (file.parts(), &code[at..]),
            };
            let line = line_of(&code, at);
            let mut named = Vec::new();
            expand(rest, base, &mut named);
            found.extend(named.into_iter().map(|path| (line, path)));
        }
    }
    found.sort_by_key(|(line, _)| *line);
    found
}

/// Collects the paths at the beginning of a text: one, or several in braces.
pub fn expand(mut rest: &str, mut path: Vec<String>, found: &mut Vec<Vec<String>>) {
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            return parts_of_group(group).for_each(|part| expand(part, path.clone(), found));
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        match &rest[..end] {
            "" => path.extend(rest.starts_with('*').then(|| "*".to_owned())),
            "super" => drop(path.pop()),
            "self" => {}
            word => path.push(word.to_owned()),
        }
        match rest[end..].strip_prefix("::") {
            Some(next) if end > 0 => rest = next,
            _ => return found.push(path),
        }
    }
}

/// Returns the parts of a group, up to its closing brace.
fn parts_of_group(group: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut start, mut parts) = (1, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && c == ',' {
            parts.push(group[start..at].trim());
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    parts.into_iter().filter(|part| !part.is_empty())
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}
