//! Resource templates that are expensive to compare with the URI of every read.

use serde_json::json;

use crate::support::upstream::offers::template;
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn a_server_has_few_templates_with_few_expressions() {
    for upstream in Upstream::both().await {
        upstream.offers_everything();
        let costly = "a://".to_owned() + &"{+x}/".repeat(17);
        let most = "a://".to_owned() + &"{+x}/".repeat(16);
        let many = (0..600).map(|number| template(&format!("b://{{x}}/{number}")));
        let all = [&costly, &most].into_iter().map(|uri| template(uri)).chain(many);
        upstream.lists("resourceTemplates", all);
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let said = gateway.modern().request("resources/templates/list", json!({})).await;
        let shown = said.result()["resourceTemplates"].as_array().unwrap();
        let uris: Vec<_> = shown.iter().map(|it| it["uriTemplate"].as_str().unwrap()).collect();
        assert!(uris[0].ends_with(&most), "{uris:?}");
        assert_eq!(uris.len(), 512);
        assert!(uris[511].ends_with("b://{x}/510"), "{uris:?}");
        let warnings = gateway.server("s").await["warnings"].to_string();
        for reason in ["has 17 expressions, at most 16", "more than 512 resource templates"] {
            assert!(warnings.contains(reason), "{warnings}");
        }
    }
}
