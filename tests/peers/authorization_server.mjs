// A real authorization server on loopback: oidc-provider, with registration, PKCE, resource
// indicators, refresh tokens and revocation. It knows one user, who agrees to everything.
//
//     node authorization_server.mjs [--ttl SECONDS]
//
// Prints `{"port": N}` once it listens. `GET /counts` tells how often what happened.
import { createServer } from 'node:http';

import Provider from 'oidc-provider';

// The library's notices are for people; nobody reads this process's output after the first line.
console.info = () => {};
console.warn = () => {};
const at = process.argv.indexOf('--ttl');
const ttl = at < 0 ? 3600 : Number(process.argv[at + 1]);
const counts = { registrations: 0, codes: 0, refreshes: 0, revocations: 0 };
const SCOPES = ['mcp:read', 'mcp:write'];

let answer = (_, response) => response.end();
const server = createServer((request, response) => answer(request, response));
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const { port } = server.address();
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [],
  cookies: { keys: ['for this test'] },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: SCOPES.join(' '),
        audience: resource,
        accessTokenTTL: ttl,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  scopes: ['openid', 'offline_access', ...SCOPES],
});
provider.on('registration_create.success', () => (counts.registrations += 1));
provider.on('grant.success', ({ oidc }) => {
  counts[oidc.params.grant_type === 'refresh_token' ? 'refreshes' : 'codes'] += 1;
});
provider.on('grant.error', (_, error) => process.stderr.write(`${error.error}: ${error.error_description}\n`));
provider.on('authorization.error', (_, error) => process.stderr.write(`${error.error}: ${error.error_description}\n`));
provider.on('registration_create.error', (_, error) => process.stderr.write(`${error.error_description}\n`));
provider.on('refresh_token.destroyed', () => (counts.revocations += 1));

/** The user logs in, and agrees to what the client asks for. */
async function interact(request, response) {
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    return provider.interactionFinished(request, response, { login: { accountId: 'ann' } });
  }
  const grant = new provider.Grant({ clientId: params.client_id, accountId: session.accountId });
  grant.addOIDCScope(['openid', 'offline_access', ...SCOPES].join(' '));
  for (const resource of [params.resource].flat()) {
    if (resource) grant.addResourceScope(resource, SCOPES.join(' '));
  }
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { consent });
}

/** Registers a client for any scope: it does not know yet which ones it will need. */
async function register(request, response) {
  let text = '';
  for await (const piece of request) text += piece;
  const { scope, ...metadata } = JSON.parse(text);
  request.body = metadata;
  handled(request, response);
}

const handled = provider.callback();
answer = async (request, response) => {
  if (request.url === '/counts') {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(counts));
  } else if (request.url.startsWith('/interaction/')) {
    await interact(request, response);
  } else if (request.url === '/reg' && request.method === 'POST') {
    await register(request, response);
  } else {
    handled(request, response);
  }
};
process.stdout.write(`${JSON.stringify({ port })}\n`);
