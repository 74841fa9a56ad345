// A server that offers one of everything, on the official TypeScript SDK 2.x.
//
// What it offers stands in everything.json, as for the other everything-servers;
// everything_server.py says what that is for, and which tools need code.
//
//     everything_server_v2.mjs --port N    http://127.0.0.1:N/mcp; 0 takes a free port
//     everything_server_v2.mjs --stdio
//
// `--era legacy` or `--era modern` leaves the other era out; `--page-size N` gives
// the lists in pages. Over HTTP one line of JSON on standard output says which port
// it is, once the socket listens.
import { randomBytes, randomUUID } from 'node:crypto';
import { appendFileSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import {
  CLIENT_CAPABILITIES_META_KEY,
  createMcpHandler,
  createRequestStateCodec,
  fromJsonSchema,
  inputRequired,
  isInitializeRequest,
  isLegacyRequest,
  McpServer,
  ProtocolError,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server';
import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from '@modelcontextprotocol/node';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const INVALID_PARAMS = -32602;
const MISSING_CAPABILITY = -32021;
const DECLARED = { 'elicitation/create': 'elicitation', 'sampling/createMessage': 'sampling', 'roots/list': 'roots' };

const everything = JSON.parse(readFileSync(new URL('everything.json', import.meta.url), 'utf8'));
const keyed = (list, key) => new Map(list.map((each) => [each.listed[key], each]));
const tools = keyed(everything.tools, 'name');
const prompts = keyed(everything.prompts, 'name');
const resources = keyed(everything.resources, 'uri');
const templates = everything.resourceTemplates;
const state = createRequestStateCodec({ key: randomBytes(32) });

const options = (() => {
  const { values } = parseArgs({
    options: {
      port: { type: 'string' },
      stdio: { type: 'boolean', default: false },
      era: { type: 'string', default: 'both' },
      'page-size': { type: 'string', default: '0' },
    },
  });
  if ((values.port === undefined) !== values.stdio || !['both', 'legacy', 'modern'].includes(values.era)) {
    console.error('usage: everything_server_v2.mjs (--port N | --stdio) [--era both|legacy|modern] [--page-size N]');
    process.exit(2);
  }
  return { ...values, pageSize: Number(values['page-size']) };
})();

const said = (...words) => ({ content: words.map((text) => ({ type: 'text', text })) });

// `value` with each `{a.b}` in its strings replaced by what `scope` has there.
function fill(value, scope) {
  if (Array.isArray(value)) return value.map((each) => fill(each, scope));
  if (value !== null && typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, fill(each, scope)]));
  }
  if (typeof value !== 'string') return value;
  return value.replaceAll(/\{([A-Za-z_][A-Za-z0-9_.]*)\}/g, (_, path) => {
    const at = path.split('.').reduce((found, name) => found?.[name], scope) ?? null;
    return typeof at === 'string' ? at : JSON.stringify(at);
  });
}

// --- Who hears of changes -----------------------------------------------------------

// Legacy sessions and stdio connections, each an instance with its own subscriptions;
// and the listeners of the Modern HTTP endpoint.
const connections = new Set();
let listeners;

const changes = {
  tools: () => changes.tell((server) => server.sendToolListChanged(), (notify) => notify.toolsChanged()),
  prompts: () => changes.tell((server) => server.sendPromptListChanged(), (notify) => notify.promptsChanged()),
  resources: () => changes.tell((server) => server.sendResourceListChanged(), (notify) => notify.resourcesChanged()),
  resource: (uri) =>
    changes.tell(
      (server, { subscribed, era }) => (era === 'modern' || subscribed.has(uri)) && server.sendResourceUpdated({ uri }),
      (notify) => notify.resourceUpdated(uri),
    ),
  async tell(send, publish) {
    if (listeners) publish(listeners);
    for (const connection of connections) await Promise.resolve(send(connection.server, connection)).catch(() => {});
  },
};

// --- What is told in everything.json -------------------------------------------------

// The Modern era has no use for an elicitation's id.
function questionFor(era, { method, params }) {
  const { elicitationId, ...rest } = params;
  return { method, params: era === 'modern' || elicitationId === undefined ? rest : params };
}

// What the client answers to all rounds of questions, or the result that asks for it; the SDK asks
// a Legacy client itself.
async function ask(connection, ctx, does, scope) {
  const capabilities = capabilitiesOf(connection, ctx);
  const isOffered = ([, { method }]) => !does.declared_only || capabilities?.[DECLARED[method]] !== undefined;
  const kept = ctx.mcpReq.requestState();
  const known = { ...kept };
  if (kept !== undefined || !does.state) Object.assign(known, ctx.mcpReq.inputResponses);
  for (const questions of fill(does.ask, scope)) {
    const missing = Object.entries(questions).filter((entry) => isOffered(entry) && known[entry[0]] === undefined);
    if (missing.length > 0) {
      return inputRequired({
        inputRequests: Object.fromEntries(missing.map(([key, question]) => [key, questionFor(connection.era, question)])),
        ...(does.state && { requestState: await state.mint(known) }),
      });
    }
  }
  return { answers: known };
}

const capabilitiesOf = (connection, ctx) =>
  ctx.mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? connection.server.getClientCapabilities();

async function progress(ctx, made, total) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  const params = { progressToken, progress: made, total, message: `${made} of ${total}` };
  await ctx.mcpReq.notify({ method: 'notifications/progress', params });
}

// What the templates of `does` are filled from, after all else that it tells to do.
async function perform(connection, ctx, given, does) {
  const scope = { ...given };
  for (const [needed, how] of Object.entries(does.needs ?? {})) {
    if (capabilitiesOf(connection, ctx)?.[needed] === undefined) {
      const data = { requiredCapabilities: { [needed]: how } };
      throw new ProtocolError(MISSING_CAPABILITY, `this needs a client with ${needed}`, data);
    }
  }
  for (const line of does.log ?? []) {
    await ctx.mcpReq.log('info', line, everything.server.name);
    await sleep(50);
  }
  for (const made of does.progress ?? []) {
    await progress(ctx, made, 100);
    await sleep(50);
  }
  if (!does.ask) return { scope };
  const asked = await ask(connection, ctx, does, scope);
  return asked.answers ? { scope: { ...scope, ...asked.answers } } : { required: asked };
}

// --- Tools ----------------------------------------------------------------------------

const own = {
  add: (_, __, { a, b }) => ({ ...said(String(a + b)), structuredContent: { sum: a + b } }),

  inspect_request(connection, ctx) {
    const seen = {
      protocolVersion: connection.server.getNegotiatedProtocolVersion(),
      requestId: ctx.mcpReq.id,
      meta: { ...ctx.mcpReq._meta, ...ctx.mcpReq.envelope },
      clientInfo: connection.server.getClientVersion() ?? null,
      clientCapabilities: capabilitiesOf(connection, ctx) ?? null,
      headers: ctx.http?.req ? Object.fromEntries(ctx.http.req.headers) : null,
    };
    return { ...said(JSON.stringify(seen)), structuredContent: seen };
  },

  async slow(_, ctx, { steps = 10, delay_ms: delay = 100, label = '' }) {
    for (let step = 1; step <= steps; step += 1) {
      try {
        await sleep(delay, undefined, { signal: ctx.mcpReq.signal });
      } catch (fault) {
        noteCancelled(`slow ${label}`.trim());
        throw fault;
      }
      await progress(ctx, step, steps);
    }
    return said(`done after ${steps} steps`);
  },

  async test_reconnection(_, ctx) {
    ctx.http?.closeSSE?.();
    await sleep(200);
    return said('You came back.');
  },

  async test_trigger_tool_change(_, __, { add, remove }) {
    if (add) {
      const listed = { name: add, description: 'Was added while the server ran.', inputSchema: { type: 'object' } };
      const words = `${add} was added while the server ran`;
      tools.set(add, { listed, does: { answer: [{ type: 'text', text: words }] } });
    }
    if (remove) tools.delete(remove);
    const oneMore = everything.added.tool;
    if (!add && !remove) toggle(tools, oneMore.listed.name, oneMore);
    await changes.tools();
    return said(`${tools.size} tools`);
  },

  async test_trigger_prompt_change() {
    const added = everything.added.prompt;
    toggle(prompts, added.listed.name, added);
    await changes.prompts();
    return said(`${prompts.size} prompts`);
  },

  async test_trigger_resource_change() {
    const added = everything.added.resource;
    toggle(resources, added.listed.uri, added);
    await changes.resources();
    return said(`${resources.size} resources`);
  },

  async test_trigger_resource_update() {
    await changes.resource('test://watched-resource');
    return said('said so');
  },
};

function noteCancelled(what) {
  const path = process.env.EVERYTHING_CANCEL_LOG;
  if (path) appendFileSync(path, `cancelled ${what}\n`);
}

function toggle(offered, key, what) {
  if (!offered.delete(key)) offered.set(key, what);
}

async function callTool(connection, { params }, ctx) {
  const called = tools.get(params.name);
  if (!called) throw new ProtocolError(INVALID_PARAMS, `Unknown tool: ${params.name}`);
  const { does } = called;
  try {
    if (does === 'own') return await own[params.name](connection, ctx, params.arguments ?? {});
    const { scope, required } = await perform(connection, ctx, params.arguments, does);
    return required ?? { content: fill(does.answer, scope), isError: does.isError ?? false };
  } catch (fault) {
    if (fault instanceof ProtocolError) throw fault;
    return { ...said(String(fault)), isError: true };
  }
}

// --- Lists, prompts, resources -----------------------------------------------------------

function page(params, offered, key) {
  const listed = offered.map((each) => each.listed);
  if (options.pageSize === 0) return { [key]: listed };
  const cursor = params?.cursor ?? '0';
  if (!/^\d+$/.test(cursor)) throw new ProtocolError(INVALID_PARAMS, 'no such cursor');
  const end = Number(cursor) + options.pageSize;
  return { [key]: listed.slice(Number(cursor), end), ...(end < listed.length && { nextCursor: String(end) }) };
}

const byName = (offered) => [...offered.values()].sort((a, b) => (a.listed.name < b.listed.name ? -1 : 1));

async function getPrompt(connection, { params }, ctx) {
  const wanted = prompts.get(params.name);
  if (!wanted) throw new ProtocolError(INVALID_PARAMS, `Unknown prompt: ${params.name}`);
  const missing = (wanted.listed.arguments ?? []).map(({ name }) => name).filter((name) => !(name in (params.arguments ?? {})));
  if (missing.length > 0) throw new ProtocolError(INVALID_PARAMS, `Missing arguments: ${missing.join(', ')}`);
  const { scope, required } = await perform(connection, ctx, params.arguments, wanted.does);
  return required ?? { description: wanted.listed.description, messages: fill(wanted.does.messages, scope) };
}

function complete({ params: { ref, argument } }) {
  const known = everything.completions[ref.type === 'ref/prompt' ? ref.name : ref.uri]?.[argument.name] ?? [];
  const values = known.filter((word) => word.startsWith(argument.value));
  return { completion: { values, total: values.length, hasMore: false } };
}

function readResource({ params: { uri } }) {
  const known = resources.get(uri);
  if (known) return { contents: known.contents };
  for (const { listed, contents } of templates) {
    const pattern = listed.uriTemplate
      .split(/\{(\w+)\}/)
      .map((part, at) => (at % 2 ? `(?<${part}>[^/]+)` : part.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)))
      .join('');
    const match = new RegExp(`^${pattern}$`).exec(uri);
    if (match) return { contents: fill(contents, match.groups) };
  }
  throw new ProtocolError(INVALID_PARAMS, 'Resource not found', { uri });
}

// --- The server -------------------------------------------------------------------------------

const CACHEABLE = ['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list', 'resources/read'];

// One instance: for a Legacy session or a stdio connection, or for one Modern request over HTTP.
function build(era) {
  const { instructions, ...about } = everything.server;
  const sdk = new McpServer(about, {
    instructions,
    capabilities: {
      tools: { listChanged: true },
      prompts: { listChanged: true },
      resources: { listChanged: true, subscribe: true },
      completions: {},
      logging: {},
    },
    cacheHints: Object.fromEntries(CACHEABLE.map((method) => [method, everything.cache])),
    requestState: { verify: state.verify },
  });
  // The SDK compares headers with arguments for the tools that it knows itself.
  for (const { listed } of tools.values()) {
    sdk.registerTool(listed.name, { inputSchema: fromJsonSchema(listed.inputSchema) }, () => said('never called'));
  }
  const { server } = sdk;
  const connection = { server, era, subscribed: new Set() };
  const handlers = {
    'tools/list': ({ params }) => page(params, byName(tools), 'tools'),
    'tools/call': (request, ctx) => callTool(connection, request, ctx),
    'prompts/list': ({ params }) => page(params, byName(prompts), 'prompts'),
    'prompts/get': (request, ctx) => getPrompt(connection, request, ctx),
    'resources/list': ({ params }) => page(params, [...resources.values()], 'resources'),
    'resources/templates/list': ({ params }) => page(params, templates, 'resourceTemplates'),
    'resources/read': readResource,
    'completion/complete': complete,
    'resources/subscribe': ({ params }) => (connection.subscribed.add(params.uri), {}),
    'resources/unsubscribe': ({ params }) => (connection.subscribed.delete(params.uri), {}),
  };
  for (const [method, handler] of Object.entries(handlers)) server.setRequestHandler(method, handler);
  return { sdk, connection };
}

// The last events of all streams, for clients that come back to a stream.
class Events {
  kept = [];
  next = 1;

  async storeEvent(stream, message) {
    const id = String(this.next);
    this.next += 1;
    this.kept.push({ id, stream, message });
    if (this.kept.length > 4096) this.kept.shift();
    return id;
  }

  async getStreamIdForEventId(last) {
    return this.kept.find(({ id }) => id === last)?.stream;
  }

  async replayEventsAfter(last, { send }) {
    const stream = await this.getStreamIdForEventId(last);
    for (const { id, stream: owner, message } of [...this.kept]) {
      if (owner === stream && Number(id) > Number(last) && message?.jsonrpc) await send(id, message);
    }
    return stream;
  }
}

const refusal = (status, code, message) =>
  Response.json({ jsonrpc: '2.0', error: { code, message }, id: null }, { status });

// The sessions of Legacy clients.
const transports = new Map();

async function legacy(request) {
  const id = request.headers.get('mcp-session-id');
  if (id !== null) return transports.get(id)?.handleRequest(request) ?? refusal(404, -32001, 'Session not found');
  const body = request.method === 'POST' ? await request.clone().json().catch(() => null) : null;
  if (!isInitializeRequest(body)) return refusal(400, -32000, 'Bad Request: Session ID required');
  const { sdk, connection } = build('legacy');
  const transport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new Events(),
    retryInterval: 100,
    onsessioninitialized: (session) => {
      transports.set(session, transport);
      connections.add(connection);
    },
  });
  transport.onclose = () => {
    transports.delete(transport.sessionId);
    connections.delete(connection);
  };
  await sdk.connect(transport);
  return transport.handleRequest(request);
}

function serveHttp() {
  const modern = createMcpHandler(() => build('modern').sdk, { legacy: 'reject' });
  if (options.era !== 'legacy') listeners = modern.notify;
  const fetch = async (request) => {
    const isLegacy = options.era === 'legacy' || (options.era === 'both' && (await isLegacyRequest(request)));
    return isLegacy ? legacy(request) : modern.fetch(request);
  };
  const answer = toNodeHandler({ fetch });
  const guards = [localhostHostValidation(), localhostOriginValidation()];
  const server = createServer((request, response) => {
    if (guards.every((guard) => guard(request, response))) void answer(request, response);
  });
  server.listen(Number(options.port), '127.0.0.1', () => console.log(JSON.stringify({ port: server.address().port })));
}

// One process serves one connection, in the era that its client opens with.
function serveStandardStreams() {
  const factory = ({ era }) => {
    const { sdk, connection } = build(era);
    connections.clear();
    connections.add(connection);
    return sdk;
  };
  serveStdio(factory, { legacy: options.era === 'modern' ? 'reject' : 'serve' });
}

async function serveLegacyStandardStreams() {
  const { StdioServerTransport } = await import('@modelcontextprotocol/server/stdio');
  const { sdk, connection } = build('legacy');
  connections.add(connection);
  await sdk.connect(new StdioServerTransport());
}

if (!options.stdio) serveHttp();
else if (options.era === 'legacy') await serveLegacyStandardStreams();
else serveStandardStreams();
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(0));
