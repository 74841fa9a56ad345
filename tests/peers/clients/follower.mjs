// The only human in a login: follows the redirects of an authorization server until one leads
// back to the client.

/** The parameters that the authorization server sends to `callback`. */
export async function follow(url, callback) {
  const cookies = new Map();
  let at = new URL(url);
  for (let hop = 0; hop < 20; hop += 1) {
    if (at.href.startsWith(callback)) return at.searchParams;
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const response = await fetch(at, { redirect: 'manual', headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [pair] = line.split(';');
      const [name, value] = [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)];
      if (value === '') cookies.delete(name);
      else cookies.set(name, value);
    }
    const location = response.headers.get('location');
    if (!location) throw new Error(`${response.status} at ${at}: ${await response.text()}`);
    at = new URL(location, at);
  }
  throw new Error(`no end of redirects at ${at}`);
}
