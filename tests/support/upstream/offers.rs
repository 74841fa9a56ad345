//! Features of a scripted server besides tools: prompts, resources, templates and completion. Each
//! answer contains its request, in the server's own names and URIs.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use super::script::{Received, Step};
use super::{Era, Inner, Upstream};

/// Returns the capabilities of a server with all features.
pub fn everything() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "completions": {},
    })
}

impl Upstream {
    /// Offers the prompt `greet`, the resources `file:///a.txt` and `b://2`, the template
    /// `db://{table}/{id}`, completion of their names, and a tool `link` with a result that refers
    /// to resources.
    pub fn offers_everything(&self) -> &Self {
        self.can(everything());
        self.lists("prompts", [prompt("greet")]);
        self.lists("resources", ["file:///a.txt", "b://2"].map(resource));
        self.lists("resourceTemplates", [template("db://{table}/{id}")]);
        self.does("link", |_| vec![Step::Result(links())]);
        self.when_asked("prompts/get", |asked| vec![get(asked)]);
        let modern = self.inner.era == Era::Modern;
        self.when_asked("resources/read", move |asked| vec![read(asked, modern)]);
        self.when_asked("completion/complete", |asked| {
            let said = format!("{} {}", asked.params["ref"], asked.params["context"]);
            vec![Step::Result(json!({ "completion": { "values": [said] } }))]
        })
    }

    /// Offers an app of MCP Apps: the tool `show` with the user interface `ui://app/main`, and a
    /// tool that the interface calls. It has no other tools.
    pub fn offers_app(&self, calls: &str) -> &Self {
        self.can(everything());
        self.lists("resources", [resource("ui://app/main"), resource("file:///secret")]);
        let modern = self.inner.era == Era::Modern;
        self.when_asked("resources/read", move |asked| vec![read(asked, modern)]);
        let show = json!({
            "name": "show", "inputSchema": { "type": "object" },
            "_meta": { "ui": { "resourceUri": "ui://app/main" } },
        });
        self.set_tools(Vec::<String>::new());
        self.tool(&show, |_| vec![Step::text("shown")]);
        let said = calls.to_owned();
        self.does(calls, move |_| vec![Step::text(format!("{said} of the app"))])
    }

    /// Sets its instructions for models.
    pub fn instructs(&self, text: &str) -> &Self {
        *self.inner.instructions.lock().unwrap() = Some(text.into());
        self
    }

    /// Sets its first steps for a request of its tools.
    pub fn before_tools(&self, steps: impl IntoIterator<Item = Step>) -> &Self {
        let (inner, steps) = (Arc::downgrade(&self.inner), Vec::from_iter(steps));
        self.when_asked("tools/list", move |asked| {
            let answer = inner.upgrade().unwrap().answer(asked).unwrap();
            steps.iter().cloned().chain([Step::Raw(answer)]).collect()
        })
    }

    /// Sets its behaviour for a method other than `tools/call`.
    pub fn when_asked(
        &self,
        method: &str,
        does: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> &Self {
        let does = Arc::new(does);
        self.inner.methods.lock().unwrap().insert(method.to_owned(), does);
        self
    }
}

pub fn prompt(name: &str) -> Value {
    json!({ "name": name, "arguments": [{ "name": "who", "required": true }] })
}

pub fn resource(uri: &str) -> Value {
    json!({ "name": uri, "uri": uri, "mimeType": "text/plain" })
}

pub fn template(uri: &str) -> Value {
    json!({ "name": uri, "uriTemplate": uri })
}

/// Returns a tool result with URIs in all possible places.
fn links() -> Value {
    json!({
        "content": [
            { "type": "resource_link", "uri": "file:///a.txt", "name": "a" },
            { "type": "resource", "resource": { "uri": "db://users/7", "text": "seven" } },
            { "type": "text", "text": "file:///a.txt" },
        ],
        "structuredContent": { "uri": "file:///a.txt" },
    })
}

fn get(asked: &Received) -> Step {
    let said = format!("{} {}", asked.params["name"], asked.params["arguments"]);
    Step::Result(json!({ "messages": [
        { "role": "user", "content": { "type": "text", "text": said } },
        { "role": "user", "content": { "type": "resource", "resource": { "uri": "b://2", "text": "two" } } },
    ] }))
}

/// Returns the content of a resource; those under `file:///missing` do not exist.
pub fn read(asked: &Received, modern: bool) -> Step {
    let uri = asked.params["uri"].as_str().unwrap();
    if uri.starts_with("file:///missing") {
        let code = if modern { -32602 } else { -32002 };
        let data = json!({ "uri": uri });
        return Step::Error(json!({ "code": code, "message": "Resource not found", "data": data }));
    }
    let mut result = json!({ "contents": [{ "uri": uri, "text": format!("what {uri} is") }] });
    if modern {
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
    }
    Step::Result(result)
}

impl Inner {
    /// Returns true if a test has scripted the request.
    pub fn is_scripted(&self, asked: &Received) -> bool {
        asked.method == "tools/call" || self.methods.lock().unwrap().contains_key(&asked.method)
    }

    /// Returns a list of some kind, or the page of it at the cursor.
    pub fn other_list(&self, member: &str, cursor: Option<&str>) -> String {
        let items = self.lists.lock().unwrap().get(member).cloned().unwrap_or_default();
        let from: usize = cursor.unwrap_or("0").parse().unwrap();
        let size = self.page.lock().unwrap().unwrap_or(usize::MAX);
        let page: Vec<_> = items.iter().skip(from).take(size).map(Value::to_string).collect();
        let mut list = format!(r#"{{"{member}":[{}]"#, page.join(","));
        if from.saturating_add(size) < items.len() {
            let _ = write!(list, r#","nextCursor":"{}""#, from + size);
        }
        if self.era == Era::Modern {
            let ttl = self.list_ttl.lock().unwrap().unwrap_or(3_600_000);
            let _ = write!(list, r#","resultType":"complete","ttlMs":{ttl},"cacheScope":"public""#);
        }
        list + "}"
    }
}
