//! The identities of an element: all names or URIs by which a rule may name it.
//!
//! A public name depends on the lists of other servers, so an operator may have written down a name
//! that the element has no longer. A rule that denies therefore matches every name that the element
//! can have.

use std::borrow::Cow;
use std::cell::OnceCell;

use crate::kind::Kind;
use crate::lists::naming::Naming;
use crate::selection::visibility::CatalogElement;
use crate::uris::prefix_uri;

/// The identities of one element, computed when they are first read.
#[derive(Debug)]
pub struct ElementIdentities<'a> {
    element: &'a CatalogElement<'a>,
    naming: &'a Naming,
    /// All identities except the public one.
    others: OnceCell<Vec<Cow<'a, str>>>,
}

impl<'a> ElementIdentities<'a> {
    /// The identities of an element under these settings of names.
    pub fn new(element: &'a CatalogElement<'a>, naming: &'a Naming) -> Self {
        Self { element, naming, others: OnceCell::new() }
    }

    /// The element.
    #[inline]
    pub fn element(&self) -> &'a CatalogElement<'a> {
        self.element
    }

    /// All identities: the current public name or URI, the native one, `SERVER__NATIVE` or the URI
    /// after the server's prefix, and every name that a naming scheme makes of it. A configured
    /// name is the current public one.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let others = self.others.get_or_init(|| self.compute_others());
        std::iter::once(self.element.public).chain(others.iter().map(|one| &**one))
    }

    fn compute_others(&self) -> Vec<Cow<'a, str>> {
        let CatalogElement { kind, server, public, native, .. } = *self.element;
        let mut others = vec![Cow::Borrowed(native)];
        if let Some(server) = server {
            match kind {
                Kind::Tools | Kind::Prompts => {
                    let names = self.naming.possible_names(server, native);
                    others.extend(names.into_iter().filter(|name| name != native).map(Cow::Owned));
                }
                Kind::Resources | Kind::Templates | Kind::Skills => {
                    others.push(Cow::Owned(prefix_uri(server, native)));
                }
            }
        }
        others.retain(|one| one != public);
        others
    }
}
