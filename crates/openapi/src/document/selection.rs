//! Selection of the offered operations, as tools or resources: `include` and `exclude`.

use http::Method;

use trunkline_config::{HttpVerb, OpenApiConfig, OperationForm, OperationRule};

use crate::schemas::references::Node;

/// Properties of an operation that rules are matched against.
pub(crate) struct OperationFacts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) operation: Node<'a>,
}

impl OperationFacts<'_> {
    /// Returns the form in which the operation is offered, or `None` if it is not.
    pub(crate) fn choose_form(&self, config: &OpenApiConfig) -> Option<OperationForm> {
        if config.exclude.iter().any(|rule| self.matches(rule)) {
            return None;
        }
        if config.include.is_empty() {
            return Some(OperationForm::Tool);
        }
        config.include.iter().rev().find(|rule| self.matches(rule)).map(|rule| rule.form)
    }

    fn matches(&self, rule: &OperationRule) -> bool {
        let OperationRule { tag, method, path, operation, form: _ } = rule;
        let id = self.operation.text("operationId").unwrap_or_default();
        let tags = || self.operation.find("tags").into_iter().flat_map(Node::items);
        method.is_none_or(|verb| HttpVerb::of_method(self.method) == Some(verb))
            && path.as_ref().is_none_or(|pattern| pattern.matches(self.path))
            && operation.as_ref().is_none_or(|pattern| pattern.matches(id))
            && tag.as_ref().is_none_or(|pattern| {
                tags().any(|tag| tag.value.as_str().is_some_and(|tag| pattern.matches(tag)))
            })
    }
}
