//! The parts of an element that are searched, each with a weight of its own.

/// A part of an element that has a weight of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// The name.
    Name,
    /// The title.
    Title,
    /// The first sentence of the description.
    Summary,
    /// The rest of the description.
    Description,
    /// The names of the parameters.
    ParameterName,
    /// The schema of the parameters: descriptions, enumerated values, nested names.
    ParameterText,
    /// The name of the server.
    Server,
}

/// The number of fields.
pub(super) const FIELD_COUNT: usize = 7;

/// The most words that are kept of each field, in the order of [`Field`]. A longer text repeats
/// itself, or tries to match every query.
pub(super) const MAX_WORDS: [usize; FIELD_COUNT] = [32, 32, 64, 512, 256, 1024, 16];

/// The frequency of a term in each field.
pub(super) type FieldCounts = [u8; FIELD_COUNT];
