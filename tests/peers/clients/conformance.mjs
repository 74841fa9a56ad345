// The client that the official suite's client scenarios start, with the URL of
// the suite's own server as its last argument:
//
//     conformance.mjs URL
//
// MCP_CONFORMANCE_SCENARIO says what to do there, and MCP_CONFORMANCE_PROTOCOL_VERSION
// at which revision, as the suite sets them. CLIENT_SDK says with what: typescript1 or
// typescript2. With CLIENT_GATEWAY, a program, the gateway is started towards that URL,
// and the SDK is pointed at the gateway. With CLIENT_FAULT the SDK logs in by itself, with that fault. The scenarios of auth/ are for the gateway only: it logs in,
// and the SDK knows nothing of it but the link that a person would open. Ends by itself, before the suite's 30 seconds
// are over: the suite would end the shell around it, and nothing else.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { brokenFetch } from './broken.mjs';

const WHOLE_RUN_MS = 25_000;
const READY_MS = 10_000;

const { MCP_CONFORMANCE_SCENARIO: scenario, MCP_CONFORMANCE_PROTOCOL_VERSION: revision } = process.env;
const { CLIENT_SDK: sdk, CLIENT_GATEWAY: gateway, CLIENT_FAULT: fault } = process.env;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const isModern = revision === '2026-07-28';

// --- The SDKs: connect gives a client with the methods that the scenarios use -----------

const INFO = { name: 'trunkline-conformance', version: '1.0.0' };

const connect = {
  async typescript1(url, capabilities, onElicitation) {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const { ElicitRequestSchema } = await import('@modelcontextprotocol/sdk/types.js');
    const client = new Client(INFO, { capabilities });
    if (onElicitation) client.setRequestHandler(ElicitRequestSchema, onElicitation);
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
  },

  async typescript2(url, capabilities, onElicitation, options) {
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    const mode = isModern ? 'auto' : 'legacy';
    const client = new Client(INFO, { capabilities, versionNegotiation: { mode } });
    if (onElicitation) client.setRequestHandler('elicitation/create', onElicitation);
    await client.connect(new StreamableHTTPClientTransport(new URL(url), options));
    return client;
  },
}[sdk];

// --- What each scenario wants to see ------------------------------------------------------

async function toolNamed(client, name) {
  const { tools } = await client.listTools();
  return tools.find((tool) => tool.name === name) ?? Promise.reject(new Error(`${name} is not listed`));
}

// What a server refuses is its own affair: the scenario sees the request.
const attempt = (promise) => promise.catch((fault) => console.error(String(fault)));

const scenarios = {
  async initialize(client) {
    await client.listTools();
  },

  async tools_call(client) {
    const { name } = await toolNamed(client, 'add_numbers');
    await client.callTool({ name, arguments: { a: 5, b: 3 } });
  },

  // Answers with nothing: the SDK fills in the defaults.
  async 'elicitation-sep1034-client-defaults'(client) {
    const { name } = await toolNamed(client, 'test_client_elicitation_defaults');
    await client.callTool({ name, arguments: {} });
  },

  async 'sse-retry'(client) {
    const { name } = await toolNamed(client, 'test_reconnection');
    await client.callTool({ name, arguments: {} });
  },

  async 'json-schema-2020-12-preservation'(client) {
    const { inputSchema } = await toolNamed(client, 'json_schema_2020_12_tool');
    await client.callTool({ name: 'json_schema_echo', arguments: { schema: inputSchema } });
  },

  async 'json-schema-ref-no-deref'(client) {
    await client.listTools();
    await sleep(500);
  },

  async 'request-metadata'(client) {
    await attempt(client.listTools());
  },

  async 'http-standard-headers'(client) {
    const { tools } = await client.listTools();
    for (const { name } of tools) await client.callTool({ name, arguments: {} });
    const { resources } = await client.listResources();
    for (const { uri } of resources) await client.readResource({ uri });
    const { prompts } = await client.listPrompts();
    for (const { name } of prompts) await client.getPrompt({ name, arguments: {} });
  },

  // The suite says which calls to make; the SDK knows the headers from the list.
  async 'http-custom-headers'(client) {
    await client.listTools();
    for (const { name, arguments: given } of context.toolCalls ?? []) {
      await attempt(client.callTool({ name, arguments: given }));
    }
  },

  async 'http-invalid-tool-headers'(client) {
    const { tools } = await client.listTools();
    for (const { name } of tools) await attempt(client.callTool({ name, arguments: { region: 'us-west1' } }));
  },

  async 'sep-2322-client-request-state'(client) {
    await client.listTools();
    for (const name of ['test_mrtr_echo_state', 'test_mrtr_no_state', 'test_mrtr_unrelated']) {
      await client.callTool({ name, arguments: {} });
    }
    // Its result breaks the protocol, and what the client makes of that is free.
    await attempt(client.callTool({ name: 'test_mrtr_no_result_type', arguments: {} }));
  },
};

// --- Logins: the only human is the one who opens the gateway's link ------------------------------

const MOST_LOGINS = 6;

/**
 * Opens a link as a browser does: agrees on the gateway's page, and goes where the authorization server
 * leads, back to the gateway.
 */
async function logIn(link) {
  const asks = await fetch(link, { redirect: 'manual' });
  const html = await asks.text();
  if (asks.status !== 200) throw new Error(`${asks.status} at ${link}: ${html}`);
  let cookie = cookieOf(asks);
  const form = new URLSearchParams({ answer: 'accept' });
  const [first] = html.split('</form>', 1);
  for (const [, name, value] of first.matchAll(/<input type="hidden" name="(\w+)" value="([^"]*)">/g)) form.set(name, value);
  const { origin } = new URL(link);
  const action = new URL(first.match(/action="([^"]*)"/)[1], link);
  const headers = { cookie, origin, 'sec-fetch-site': 'same-origin' };
  const agreed = await fetch(action, { method: 'POST', body: form, headers, redirect: 'manual' });
  cookie = cookieOf(agreed) ?? cookie;
  const place = agreed.headers.get('location');
  if (!place) throw new Error(`${agreed.status} at ${action}: ${await agreed.text()}`);
  const leads = await fetch(place, { redirect: 'manual' });
  const back = leads.headers.get('location');
  if (!back) throw new Error(`${leads.status} at ${place}`);
  const page = await fetch(new URL(back, place), { redirect: 'manual', headers: { cookie } });
  console.error(`${page.status} at the callback: ${(await page.text()).match(/<p>(.*)<\/p>/)?.[1]}`);
}

const cookieOf = (response) => response.headers.getSetCookie()[0]?.split(';')[0];

/** What the gateway says instead of a result, or that it has one. */
async function callTool(client) {
  await client.listTools();
  const result = await client.callTool({ name: 'test-tool', arguments: {} }).catch((fault) => fault);
  if (result instanceof Error) return result.message;
  return result.isError ? result.content[0].text : undefined;
}

/** Calls, and logs in as often as the gateway asks for it. */
async function callWithLogins(client) {
  for (let logins = 0; logins <= MOST_LOGINS; logins += 1) {
    const told = await callTool(client);
    if (told === undefined) return;
    console.error(told);
    const link = told.match(/open (\S+) in a browser/)?.[1];
    if (!link) return;
    await logIn(link);
  }
  throw new Error('there is no end of logins');
}

const isLogin = scenario?.startsWith('auth/');
if (isLogin) {
  scenarios[scenario] = async (client) => {
    await callWithLogins(client);
    await callWithLogins(client);
  };
}

/** The settings of the gateway's OAuth client that a scenario is about. */
function oauthSettings(url) {
  const { client_id, client_secret, private_key_pem, signing_algorithm } = context;
  const settings = { client_id, client_secret, private_key: private_key_pem, key_algorithm: signing_algorithm };
  // Servers of the suite with metadata at the root are a part of the resource that is their origin.
  settings.resource = new URL(url).origin;
  if (scenario === 'auth/basic-cimd') {
    settings.client_metadata_url = 'https://conformance-test.local/client-metadata.json';
  }
  if (scenario.startsWith('auth/client-credentials')) settings.grant = 'client_credentials';
  if (scenario === 'auth/wif-jwt-bearer') {
    // A workload is no registered client: its JWT says who it is.
    return table('everything.oauth', { grant: 'jwt_bearer', assertion: context.valid_jwt });
  }
  if (scenario === 'auth/enterprise-managed-authorization') {
    // The identity provider publishes no keys, so the gateway could not verify its ID token as a
    // client's: it is the operator's, for all.
    Object.assign(settings, { grant: 'id_jag', per: 'gateway', subject_token: context.idp_id_token });
    const idp = { token_endpoint: context.idp_token_endpoint, client_id: context.idp_client_id };
    return table('everything.oauth', settings) + table('everything.oauth.idp', idp);
  }
  return table('everything.oauth', settings);
}

function table(name, settings) {
  const lines = Object.entries(settings).filter(([, value]) => value !== undefined);
  return [`[servers.${name}]`, ...lines.map(([key, value]) => `${key} = ${JSON.stringify(value)}`), ''].join('\n');
}

const CAPABILITIES = {
  'elicitation-sep1034-client-defaults': { elicitation: { form: { applyDefaults: true } } },
  'request-metadata': { roots: { listChanged: true }, sampling: {}, elicitation: {} },
  'sep-2322-client-request-state': { elicitation: {} },
};
const ANSWERS = {
  'elicitation-sep1034-client-defaults': {},
  'sep-2322-client-request-state': { confirmed: true },
};

// --- The gateway in the middle -----------------------------------------------------------------

async function freePort() {
  const server = createServer();
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

async function startGateway(url) {
  const [client, admin] = [await freePort(), await freePort()];
  const folder = mkdtempSync(join(tmpdir(), 'conformance-'));
  const config = join(folder, 'gateway.toml');
  writeFileSync(
    config,
    `[gateway]
listen = "127.0.0.1:${client}"
naming = "none"
uris = "original"

[admin]
listen = "127.0.0.1:${admin}"

[servers.everything]
url = ${JSON.stringify(url)}
${isLogin ? oauthSettings(url) : ''}`,
  );
  const child = spawn(gateway, ['serve', '--config', config], { stdio: ['ignore', 'inherit', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const stop = async () => {
    child.kill();
    const timer = setTimeout(() => child.kill('SIGKILL'), 3000);
    await ended;
    clearTimeout(timer);
    rmSync(folder, { recursive: true });
  };
  const deadline = Date.now() + READY_MS;
  const ask = (path) => fetch(`http://127.0.0.1:${admin}${path}`);
  // A server that waits for a login is not ready, and says so.
  const status = () => JSON.parse(spawnSync(gateway, ['status', '--json', config]).stdout);
  const hasVerdict = async () => status().servers[0].first_verdict_at !== null;
  const isReady = () => (isLogin ? hasVerdict() : ask('/readyz').then(({ ok }) => ok)).catch(() => false);
  while (!(await isReady())) {
    if (child.exitCode !== null || Date.now() > deadline) {
      await stop();
      throw new Error('the gateway did not get ready');
    }
    await sleep(50);
  }
  return { url: `http://127.0.0.1:${client}/mcp`, stop };
}

// --- The run ---------------------------------------------------------------------------------------

async function run() {
  if (!connect || !scenarios[scenario]) throw new Error(`nothing is known of ${sdk} or ${scenario}`);
  const answer = ANSWERS[scenario];
  const onElicitation = answer && (async () => ({ action: 'accept', content: answer }));
  // In place of the gateway, a client with a fault that the scenario has to find.
  const options = fault && { fetch: brokenFetch(process.argv.at(-1), { fault, scenario, context }) };
  const door = gateway && !fault ? await startGateway(process.argv.at(-1)) : { url: process.argv.at(-1), stop: async () => {} };
  let client;
  try {
    const limit = sleep(WHOLE_RUN_MS - READY_MS, undefined, { ref: false }).then(() => Promise.reject(new Error('it takes too long')));
    const driven = (async () => {
      client = await connect(door.url, CAPABILITIES[scenario] ?? {}, onElicitation, options);
      await scenarios[scenario](client);
    })();
    await Promise.race([driven, limit]);
  } finally {
    await Promise.race([client?.close().catch(() => {}), sleep(1000)]);
    await door.stop();
  }
}

run().then(
  () => process.exit(0),
  (fault) => {
    console.error(fault);
    process.exit(1);
  },
);
