//! A person's browser: keeps the gateway's cookie, and sends the forms of pages that it has opened.

use std::collections::HashMap;
use std::sync::Mutex;

use url::Url;
use url::form_urlencoded::Serializer;

use super::client::{Client, Said};
use super::gateway::Gateway;

/// A browser.
pub struct Browser {
    client: Client,
    origin: String,
    cookie: Mutex<Option<String>>,
}

impl Browser {
    pub fn of(gateway: &Gateway) -> Self {
        let origin = format!("http://{}", gateway.running.address);
        Self { client: gateway.plain(), origin, cookie: Mutex::default() }
    }

    /// Returns the cookie that it would send.
    pub fn cookie(&self) -> Option<String> {
        self.cookie.lock().unwrap().clone()
    }

    /// Replaces its cookie.
    pub fn has(&self, cookie: Option<String>) {
        *self.cookie.lock().unwrap() = cookie;
    }

    /// Opens a page, by its path or its whole URL.
    pub async fn opens(&self, place: &str) -> Said {
        let path = place.strip_prefix(&self.origin).unwrap_or(place);
        self.request("GET", path, None, &[]).await
    }

    /// Sends a form to a path, like a page of the gateway.
    pub async fn sends(&self, path: &str, fields: &[(&str, &str)]) -> Said {
        let origin = self.origin.clone();
        let headers = [("origin", &*origin), ("sec-fetch-site", "same-origin")];
        self.sends_with(path, fields, &headers).await
    }

    /// Sends a form to a path with these headers.
    pub async fn sends_with(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Said {
        let form = Serializer::new(String::new()).extend_pairs(fields).finish();
        self.request("POST", path, Some(form), headers).await
    }

    async fn request(
        &self,
        method: &str,
        path: &str,
        form: Option<String>,
        headers: &[(&str, &str)],
    ) -> Said {
        let mut ask = self.client.http(method, path);
        if let Some(cookie) = self.cookie() {
            ask = ask.header("cookie", &cookie);
        }
        if let Some(form) = form {
            ask = ask.header("content-type", "application/x-www-form-urlencoded").body(form);
        }
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        let said = ask.send().await.said().await;
        if let Some(cookie) = said.header("set-cookie") {
            let pair = cookie.split(';').next().unwrap().to_owned();
            *self.cookie.lock().unwrap() = Some(pair);
        }
        said
    }

    /// Opens a link of the gateway and consents. Returns the link of the authorization server.
    pub async fn agrees(&self, link: &str) -> String {
        let page = self.opens(link).await;
        assert_eq!(page.status, 200, "{page:?}");
        let form = fields(&page.body);
        let answer = [("form_key", &*form["form_key"]), ("ticket", &*form["ticket"])];
        let answer = [answer[0], answer[1], ("answer", "accept")];
        let led = self.sends("/connect/link", &answer).await;
        assert_eq!(led.status, 303, "{led:?}");
        led.header("location").unwrap().to_owned()
    }
}

/// Returns the hidden fields of the first form of a page.
pub fn fields(page: &str) -> HashMap<String, String> {
    let form = page.split("<form").nth(1).unwrap_or_else(|| panic!("no form: {page}"));
    let form = form.split("</form>").next().unwrap();
    let inputs = form.split("<input").skip(1);
    let attribute = |input: &str, name: &str| {
        let value = input.split(&format!("{name}=\"")).nth(1).unwrap();
        read_html(value.split('"').next().unwrap())
    };
    inputs.map(|input| (attribute(input, "name"), attribute(input, "value"))).collect()
}

/// Decodes the text of an attribute.
fn read_html(text: &str) -> String {
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
        .into_iter()
        .fold(text.to_owned(), |text, (entity, character)| text.replace(entity, character))
}

/// Returns true if a URL has this origin.
pub fn is_at(url: &str, origin: &str) -> bool {
    Url::parse(url).unwrap().origin() == Url::parse(origin).unwrap().origin()
}
