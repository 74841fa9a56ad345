// A small OAuth client with one fault at a time, for the auth scenarios of the official suite: each
// fault must fail a check, or the scenario checks nothing (tests/conformance/auth.py --broken).
//
// The suite has such clients of its own (examples/clients/typescript/auth-test-*.ts), which are not in
// its npm package: they import its sources. The faults here are the same ones, by other names.
import { createHash, generateKeyPairSync, randomBytes, randomUUID, sign } from 'node:crypto';

const b64 = (value) => Buffer.from(value).toString('base64url');
const sha = (text) => createHash('sha256').update(text).digest('base64url');
const REDIRECT = 'http://127.0.0.1:9/callback';
const DOCUMENT = 'https://conformance-test.local/client-metadata.json';
const GRANT = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
const MOST_TRIES = 3;

/** A `fetch` that logs in where it is asked to, with this fault. */
export function brokenFetch(server, { fault, scenario, context }) {
  const state = { granted: '', tries: 0 };
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { crv, kty, x, y } = key.publicKey.export({ format: 'jwk' });

  function prove(method, url, claims) {
    const { origin, pathname } = new URL(url);
    const header = { typ: 'dpop+jwt', alg: 'ES256', jwk: { crv, kty, x, y } };
    const all = { jti: randomUUID(), htm: method, htu: origin + pathname, iat: Math.floor(Date.now() / 1000), ...claims };
    const signed = `${b64(JSON.stringify(header))}.${b64(JSON.stringify(all))}`;
    return `${signed}.${sign('sha256', Buffer.from(signed), { key: key.privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`;
  }

  const json = async (url) => {
    const answer = await fetch(url);
    return answer.ok ? answer.json() : undefined;
  };

  async function discover(challenge) {
    const { origin, pathname } = new URL(server);
    const named = challenge.match(/resource_metadata="?([^",\s]+)/)?.[1];
    const below = `${origin}/.well-known/oauth-protected-resource${pathname}`;
    const root = `${origin}/.well-known/oauth-protected-resource`;
    const places = fault === 'root-metadata' ? [root, named, below] : [named, below, root];
    let resource;
    for (const place of places.filter(Boolean)) resource ??= await json(place);
    const issuer = resource.authorization_servers[0];
    const { origin: base, pathname: tenant } = new URL(issuer);
    const path = tenant === '/' ? '' : tenant;
    const documents = [
      `${base}/.well-known/oauth-authorization-server${path}`,
      `${base}/.well-known/openid-configuration${path}`,
      `${base}${path}/.well-known/openid-configuration`,
    ];
    let metadata;
    for (const document of documents) metadata ??= await json(document);
    if (metadata.issuer !== issuer && fault !== 'issuer-unchecked') throw new Error('another issuer');
    return { resource, issuer, metadata };
  }

  async function register({ issuer, metadata }) {
    if (context.client_id) return { client_id: context.client_id };
    if (metadata.client_id_metadata_document_supported && fault !== 'no-document') return { client_id: DOCUMENT };
    if (state.client && (state.issuer === issuer || fault === 'reuse-credentials')) return state.client;
    const body = { client_name: 'broken', redirect_uris: [REDIRECT], grant_types: ['authorization_code', 'refresh_token'] };
    if (fault !== 'no-application-type') body.application_type = 'native';
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(metadata.registration_endpoint, { method: 'POST', headers, body: JSON.stringify(body) });
    Object.assign(state, { client: await answer.json(), issuer });
    return state.client;
  }

  function scopes(challenge, resource) {
    const asked = challenge.match(/scope="([^"]*)"/)?.[1];
    if (fault === 'ignore-scope') return 'something:else';
    if (asked) return fault === 'echo-scope' ? asked : [...new Set(`${state.granted} ${asked}`.trim().split(' '))].join(' ');
    if (resource.scopes_supported) return resource.scopes_supported.join(' ');
    return fault === 'scope-anyway' ? 'something:else' : '';
  }

  async function authorize(found, client, scope) {
    const verifier = randomBytes(32).toString('base64url');
    const link = new URL(found.metadata.authorization_endpoint);
    const asked = { response_type: 'code', client_id: client.client_id, redirect_uri: REDIRECT, state: randomUUID(), resource: found.resource.resource };
    if (scope) asked.scope = scope;
    if (fault !== 'no-pkce') Object.assign(asked, { code_challenge: sha(verifier), code_challenge_method: 'S256' });
    for (const [name, value] of Object.entries(asked)) link.searchParams.set(name, value);
    const leads = await fetch(link, { redirect: 'manual' });
    const back = new URL(leads.headers.get('location')).searchParams;
    checkIssuer(back.get('iss'), found);
    const form = { grant_type: 'authorization_code', code: back.get('code'), redirect_uri: REDIRECT, resource: asked.resource };
    return fault === 'no-pkce' ? form : { ...form, code_verifier: verifier };
  }

  function checkIssuer(iss, { issuer, metadata }) {
    if (fault === 'iss-unchecked' || fault === 'issuer-unchecked') return;
    const plain = (text) => (fault === 'iss-normalized' ? new URL(text).href : text);
    if (iss === null && metadata.authorization_response_iss_parameter_supported) throw new Error('no iss');
    if (iss !== null && plain(iss) !== plain(issuer)) throw new Error('another iss');
  }

  async function ask({ metadata }, client, form) {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    const all = { ...form };
    const methods = metadata.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    if (client.client_secret && methods.includes('client_secret_basic')) {
      headers.authorization = `Basic ${Buffer.from(`${client.client_id}:${client.client_secret}`).toString('base64')}`;
    } else {
      Object.assign(all, { client_id: client.client_id });
      if (client.client_secret) all.client_secret = client.client_secret;
    }
    const send = (nonce) => {
      if (metadata.dpop_signing_alg_values_supported && fault !== 'dpop-no-token-proof') {
        headers.dpop = prove('POST', metadata.token_endpoint, nonce ? { nonce } : {});
      }
      return fetch(metadata.token_endpoint, { method: 'POST', headers, body: new URLSearchParams(all) });
    };
    let answer = await send();
    const nonce = answer.headers.get('dpop-nonce');
    if (nonce && fault !== 'dpop-no-issuer-nonce') answer = await send(nonce);
    const tokens = await answer.json();
    if (!tokens.access_token) throw new Error(`no token: ${tokens.error}`);
    return tokens.access_token;
  }

  /** The JWT of a workload for a token: once, unless that is the fault. */
  async function present(found, scope) {
    const jwt = { 'workload-audience': context.wrong_audience_jwt, 'workload-expired': context.expired_jwt }[fault] ?? context.valid_jwt;
    const form = { grant_type: GRANT, resource: found.resource.resource };
    if (scope) form.scope = scope;
    if (fault !== 'workload-no-jwt') form.assertion = jwt;
    const client = { client_id: context.client_id };
    if (fault === 'workload-retry' || fault === 'workload-fallback') {
      await ask(found, client, { ...form, scope: 'wif.trigger-unauthorized' }).catch(() => {});
      if (fault === 'workload-fallback') return ask(found, client, { grant_type: 'authorization_code', code: 'none' });
    }
    return ask(found, client, form);
  }

  async function logIn(challenge) {
    const found = await discover(challenge);
    const scope = scopes(challenge, found.resource);
    if (scenario === 'auth/wif-jwt-bearer') return present(found, scope);
    const client = await register(found);
    state.granted = scope;
    return ask(found, client, await authorize(found, client, scope));
  }

  return async (url, init = {}) => {
    const send = () => {
      const headers = new Headers(init.headers);
      if (!state.token) return fetch(url, { ...init, headers });
      const isBound = scenario.startsWith('auth/dpop');
      headers.set('authorization', `${isBound && fault !== 'dpop-bearer' ? 'DPoP' : 'Bearer'} ${state.token}`);
      if (isBound) {
        const claims = { ath: sha(state.token), ...(state.nonce ? { nonce: state.nonce } : {}) };
        const proof = prove((init.method ?? 'GET').toUpperCase(), url, claims);
        if (fault === 'dpop-replay') state.proof ??= proof;
        headers.set('dpop', state.proof ?? proof);
      }
      return fetch(url, { ...init, headers });
    };
    let answer = await send();
    const most = fault === 'no-limit' ? 10 : MOST_TRIES;
    for (let tries = 0; [401, 403].includes(answer.status) && tries < most; tries += 1) {
      const challenge = answer.headers.get('www-authenticate') ?? '';
      if (answer.status === 403 && fault === 'ignore-403') return answer;
      if (challenge.includes('use_dpop_nonce')) {
        if (fault === 'dpop-no-server-nonce') return answer;
        state.nonce = answer.headers.get('dpop-nonce');
      } else {
        if ((state.tries += 1) > most) return answer;
        state.token = await logIn(challenge);
      }
      answer = await send();
    }
    return answer;
  };
}
