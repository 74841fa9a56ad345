// The only human in a login: follows the redirects of an authorization server until one leads
// back to the client, and agrees on the gateway's own page.

const TEXT = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'" };

/** The form of the gateway's page: where it is sent, and what is sent when the user continues. */
function formOf(page, at) {
  const text = (html) => html.replace(/&(?:amp|lt|gt|quot|#39);/g, (entity) => TEXT[entity]);
  const [, action] = page.match(/<form method="post" action="([^"]+\/consent)">/) ?? [];
  if (!action) return undefined;
  const hidden = page.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)">/g);
  const body = new URLSearchParams([...hidden].map(([, name, value]) => [name, text(value)]));
  body.set('answer', 'accept');
  return { action: new URL(text(action), at), body };
}

/** The parameters that the authorization server sends to `callback`. */
export async function follow(url, callback) {
  const cookies = new Map();
  let at = new URL(url);
  const open = async (place, request) => {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const response = await fetch(place, { ...request, redirect: 'manual', headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [pair] = line.split(';');
      const [name, value] = [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)];
      if (value === '') cookies.delete(name);
      else cookies.set(name, value);
    }
    return response;
  };
  for (let hop = 0; hop < 20; hop += 1) {
    if (at.href.startsWith(callback)) return at.searchParams;
    let response = await open(at, {});
    if (response.status === 200) {
      const page = await response.text();
      const form = formOf(page, at);
      if (!form) throw new Error(`${response.status} at ${at}: ${page}`);
      response = await open(form.action, { method: 'POST', body: form.body });
    }
    const location = response.headers.get('location');
    if (!location) throw new Error(`${response.status} at ${at}: ${await response.text()}`);
    at = new URL(location, at);
  }
  throw new Error(`no end of redirects at ${at}`);
}
