// A real authorization server on loopback: oidc-provider, with registration, PKCE, resource
// indicators, refresh tokens and revocation. It knows one user, who agrees to everything.
//
//     node authorization_server.mjs [--ttl SECONDS] [--without-mcp]
//
// With `--without-mcp` it knows nothing of MCP, as many organisations' do: it refuses `resource`,
// registers nobody and knows one public client, and neither says that it has PKCE nor names itself in
// its answers.
//
// Prints `{"port": N}` once it listens. `GET /counts` tells how often what happened.
import { createServer } from 'node:http';

import Provider from 'oidc-provider';

// The library's notices are for people; nobody reads this process's output after the first line.
console.info = () => {};
console.warn = () => {};
const at = process.argv.indexOf('--ttl');
const ttl = at < 0 ? 3600 : Number(process.argv[at + 1]);
const knowsMcp = !process.argv.includes('--without-mcp');
const AUDIENCE = 'api://gateway';
const CALLBACKS = ['http://127.0.0.1:1/callback', 'http://127.0.0.1/oauth/callback', 'http://localhost/oauth/callback'];
const counts = { registrations: 0, codes: 0, refreshes: 0, revocations: 0 };
const SCOPES = ['mcp:read', 'mcp:write'];

let answer = (_, response) => response.end();
const server = createServer((request, response) => answer(request, response));
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const { port } = server.address();
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: knowsMcp
    ? []
    : [
        {
          client_id: 'fixed-client',
          application_type: 'native',
          token_endpoint_auth_method: 'none',
          grant_types: ['authorization_code', 'refresh_token'],
          redirect_uris: CALLBACKS,
        },
      ],
  cookies: { keys: ['for this test'] },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: knowsMcp },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => (knowsMcp ? undefined : AUDIENCE),
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
if (!knowsMcp) {
  provider.use(async (ctx, next) => {
    const [isMetadata, isAsked] = [ctx.path.startsWith('/.well-known/'), 'resource' in ctx.query];
    if (isAsked) {
      ctx.status = 400;
      ctx.body = { error: 'invalid_target', error_description: 'the parameter resource is not supported' };
      return;
    }
    await next();
    if (isMetadata) {
      const { code_challenge_methods_supported, authorization_response_iss_parameter_supported, ...rest } = ctx.body;
      ctx.body = rest;
    }
    const location = ctx.response.get('location');
    if (location?.includes('iss=')) {
      const to = new URL(location);
      to.searchParams.delete('iss');
      ctx.set('location', to.href);
    }
  });
}
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
  for (const resource of [knowsMcp ? params.resource : AUDIENCE].flat()) {
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

/** Refuses a form with `resource`, for a server that does not know it. */
async function token(request, response) {
  let text = '';
  for await (const piece of request) text += piece;
  request.body = Object.fromEntries(new URLSearchParams(text));
  if ('resource' in request.body) {
    response.writeHead(400, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: 'invalid_target', error_description: 'no resource here' }));
  } else {
    handled(request, response);
  }
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
  } else if (!knowsMcp && request.url === '/token') {
    await token(request, response);
  } else {
    handled(request, response);
  }
};
process.stdout.write(`${JSON.stringify({ port })}\n`);
