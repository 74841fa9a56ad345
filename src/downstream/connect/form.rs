//! Forms of the pages.

use std::time::Duration;

/// The fields of a form; missing ones are empty.
#[derive(Debug, Default)]
pub(super) struct PageForm {
    /// The key of the browser's pages.
    pub(super) form_key: String,
    pub(super) ticket: String,
    pub(super) server: String,
    pub(super) answer: String,
}

impl PageForm {
    /// Parses a body of the type `application/x-www-form-urlencoded`. Unknown fields are ignored.
    pub(super) fn parse(body: &[u8]) -> Self {
        let mut form = Self::default();
        for (name, value) in url::form_urlencoded::parse(body) {
            let field = match &*name {
                "form_key" => &mut form.form_key,
                "ticket" => &mut form.ticket,
                "server" => &mut form.server,
                "answer" => &mut form.answer,
                _ => continue,
            };
            *field = value.into_owned();
        }
        form
    }
}

/// Limits of a form: its bytes, and the time to read it.
pub(super) const MAX_FORM_BYTES: usize = 4096;
pub(super) const FORM_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_its_fields_and_no_others() {
        let form = PageForm::parse(b"form_key=k%2B1&ticket=t&x=y&server=a+b");
        assert_eq!((&*form.form_key, &*form.ticket, &*form.server), ("k+1", "t", "a b"));
        assert_eq!(form.answer, "");
    }
}
