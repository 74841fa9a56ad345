//! Vectors of texts, and their similarity by meaning.

/// The vector of a text, with a byte for each dimension. More precision would be noise: the
/// similarity of two vectors differs from that of the model's own numbers by less than 0.01.
#[derive(Debug, Clone, PartialEq)]
pub struct TextVector {
    values: Box<[i8]>,
    /// One, divided by the length.
    inverse_length: f32,
}

impl TextVector {
    /// The vector of a model's numbers; `None` if all of them are 0, one is not finite, or there
    /// are more than [`MAX_DIMENSIONS`].
    pub fn from_numbers(numbers: &[f32]) -> Option<Self> {
        let largest = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let is_usable = numbers.iter().all(|number| number.is_finite()) && largest > 0.0;
        if !is_usable || numbers.len() > MAX_DIMENSIONS {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "from -127 to 127")]
        let values: Box<[i8]> =
            numbers.iter().map(|number| (number / largest * 127.0).round() as i8).collect();
        let length = root(multiply(&values, &values));
        Some(Self { values, inverse_length: 1.0 / length })
    }

    /// The similarity of two texts: from -1 to 1, the cosine of the angle between their vectors; 0
    /// if these have different numbers of dimensions.
    pub fn similarity(&self, other: &Self) -> f32 {
        if self.values.len() != other.values.len() {
            return 0.0;
        }
        let product = multiply(&self.values, &other.values);
        #[expect(clippy::cast_precision_loss, reason = "of no account in a mark")]
        let product = product as f32;
        product * self.inverse_length * other.inverse_length
    }

    /// The number of dimensions.
    pub fn dimensions(&self) -> usize {
        self.values.len()
    }

    /// The approximate size in memory, in bytes.
    pub fn size(&self) -> usize {
        self.values.len() + size_of::<Self>()
    }
}

/// The scalar product: at most 2^14 for each dimension, so that it is exact.
fn multiply(one: &[i8], other: &[i8]) -> i32 {
    one.iter().zip(other).map(|(one, other)| i32::from(*one) * i32::from(*other)).sum()
}

#[expect(clippy::cast_precision_loss, reason = "of no account in a length")]
fn root(square: i32) -> f32 {
    (square as f32).sqrt()
}

/// The most dimensions of a vector.
pub const MAX_DIMENSIONS: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarity_is_the_cosine() {
        let vector = |numbers: &[f32]| TextVector::from_numbers(numbers).unwrap();
        let one = vector(&[0.3, -0.4, 0.0]);
        for (numbers, expected) in [
            (&[0.6, -0.8, 0.0][..], 1.0),
            (&[-3.0, 4.0, 0.0], -1.0),
            (&[0.0, 0.0, 7.0], 0.0),
            (&[1.0, 0.0, 0.0], 0.6),
            (&[1.0, 0.0], 0.0),
        ] {
            let found = one.similarity(&vector(numbers));
            assert!((found - expected).abs() < 0.01, "{numbers:?}: {found}");
        }
    }

    #[test]
    fn numbers_that_say_nothing_make_no_vector() {
        let endless = vec![1.0; MAX_DIMENSIONS + 1];
        for numbers in [&[][..], &[0.0, 0.0], &[f32::NAN, 1.0], &[f32::INFINITY], &endless] {
            assert_eq!(TextVector::from_numbers(numbers), None);
        }
        let most = TextVector::from_numbers(&vec![-1.0; MAX_DIMENSIONS]).unwrap();
        assert!((most.similarity(&most) - 1.0).abs() < 0.001);
    }
}
