//! Notifications outside of calls, for clients of either era.

use bytes::Bytes;

use trunkline_jsonrpc::{Id, object, string};

use crate::mcp::meta;

use super::meta::rewrite;

/// The params of a server's notification for a client: `renamed` members carry
/// the client's own names, and the client's subscription id replaces the
/// gateway's. Legacy clients have no subscription ids.
pub fn params(raw: &Bytes, renamed: &[(&str, &str)], subscription: Option<&Id>) -> Bytes {
    let renamed: Vec<_> = renamed.iter().map(|(key, name)| (*key, string(name))).collect();
    let mut add: Vec<(&str, &[u8])> =
        renamed.iter().map(|(key, name)| (*key, name.as_bytes())).collect();
    let own = own_meta(raw);
    let tag = subscription.map(|id| (meta::SUBSCRIPTION_ID, id.raw()));
    let metadata = rewrite(own.as_deref(), &[meta::SUBSCRIPTION_ID], tag.as_slice());
    if metadata != "{}" {
        add.push((meta::META, &metadata));
    }
    rewrite(Some(raw), &[meta::META], &add)
}

fn own_meta(raw: &Bytes) -> Option<Bytes> {
    #[derive(serde::Deserialize)]
    struct WithMeta<'a> {
        #[serde(borrow, rename = "_meta")]
        metadata: &'a serde_json::value::RawValue,
    }
    let params: WithMeta<'_> = object(raw).ok()?;
    Some(raw.slice_ref(params.metadata.get().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sees_its_own_names_and_its_own_subscription() {
        let raw = Bytes::from_static(
            br#"{"uri":"a:b","n":1.50,"_meta":{"io.modelcontextprotocol/subscriptionId":7,"x":[ 1]}}"#,
        );
        let id = Id::number(9);
        assert_eq!(
            params(&raw, &[("uri", "mcp://s/a:b")], Some(&id)),
            r#"{"n":1.50,"uri":"mcp://s/a:b","_meta":{"x":[ 1],"io.modelcontextprotocol/subscriptionId":9}}"#
        );
        assert_eq!(params(&raw, &[], None), r#"{"uri":"a:b","n":1.50,"_meta":{"x":[ 1]}}"#);
        let plain = Bytes::from_static(br#"{"uri":"a:b","_meta":null}"#);
        assert_eq!(params(&plain, &[], None), r#"{"uri":"a:b"}"#);
    }
}
