//! One form of tasks made of the other.
