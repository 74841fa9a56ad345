// What the TypeScript drivers share: the command line, the steps, the lines they
// print. README.md, next folder up, describes both. An SDK's own part is an
// object that connect() returns: see ts_v1.mjs and ts_v2.mjs.

import { createInterface } from 'node:readline';

const WHOLE_RUN_MS = 180_000;
const STEP_MS = 20_000;
const ERAS = ['legacy', 'modern', 'auto'];

// The SDKs warn on standard output too; that stream is for results alone.
console.log = console.info = console.debug = console.error;

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function fault(words) {
  process.stderr.write(`driver: ${words}\n`);
  process.exit(2);
}

function readCommandLine(supported) {
  const options = { url: undefined, era: 'auto', headers: {}, lines: false };
  const words = process.argv.slice(2);
  while (words.length > 0) {
    const word = words.shift();
    if (word === '--era') options.era = words.shift();
    else if (word === '--header') {
      const [, name, value] = /^([^:]+):\s*(.*)$/.exec(words.shift() ?? '') ?? fault('--header takes NAME: VALUE');
      options.headers[name] = value;
    } else if (word === '--lines') options.lines = true;
    else if (word.startsWith('-') || options.url !== undefined) fault(`what is ${word}?`);
    else options.url = word;
  }
  if (options.url === undefined) fault('usage: DRIVER URL [--era legacy|modern|auto] [--header "NAME: VALUE"] [--lines] < STEPS');
  if (!ERAS.includes(options.era)) fault(`no such era: ${options.era}`);
  if (!supported.includes(options.era)) fault(`this SDK has no ${options.era} era`);
  return options;
}

async function readSteps() {
  let text = '';
  for await (const chunk of process.stdin) text += chunk;
  const steps = text.trim() === '' ? [] : JSON.parse(text);
  if (!Array.isArray(steps)) fault('the steps are not an array');
  return steps.map(checked);
}

/** The steps of `--lines`: one a line, until the input ends. */
async function* readLines() {
  for await (const line of createInterface({ input: process.stdin })) {
    if (line.trim() === '') return;
    yield checked(JSON.parse(line));
  }
}

function checked(step) {
  if (!Object.hasOwn(OPS, step.op)) fault(`no such op: ${step.op}`);
  return step;
}

function asError(thrown) {
  return {
    code: thrown?.code ?? thrown?.status ?? null,
    message: (thrown?.message ?? String(thrown)).replace(/^MCP error -?\d+: /, ''), // SDK 1.x adds that
    name: thrown?.name ?? null,
    ...(thrown?.data === undefined ? {} : { data: thrown.data }),
  };
}

class TimedOut extends Error {
  name = 'TimedOut';
  code = 'timeout';
}

/**
 * A fetch for a transport, and `opened`, which resolves when the Legacy GET stream
 * was answered: what a server says on it before is lost, and no SDK tells when.
 */
export function watchGetStream() {
  let tell;
  const opened = new Promise((resolve) => (tell = resolve));
  const watchedFetch = async (url, init) => {
    const response = await fetch(url, init);
    if ((init?.method ?? 'GET') === 'GET') tell();
    return response;
  };
  return { fetch: watchedFetch, opened: () => Promise.race([opened, sleep(2000)]) };
}

/** The words of a command where the target is `stdio:["COMMAND", "ARGUMENT", …]`. */
export function commandIn(target) {
  if (!target.startsWith('stdio:')) return undefined;
  const [command, ...args] = JSON.parse(target.slice('stdio:'.length));
  return { command, args, env: process.env, stderr: 'inherit' };
}

/** The URL where the target is `sse:URL`, of a server on the transport of 2024-11-05. */
export function sseIn(target) {
  return target.startsWith('sse:') ? new URL(target.slice('sse:'.length)) : undefined;
}

/** What was heard from the server, by kind; `until` awaits one that nobody has waited for yet. */
class Heard {
  #unseen = new Map();
  #wake = () => {};

  /** `kind` is `tools`, `prompts` or `resources` for a list that changed, `updated URI`, or `log`. */
  arrived(kind, what) {
    this.#unseen.set(kind, [...(this.#unseen.get(kind) ?? []), what]);
    this.#wake();
  }

  forget() {
    this.#unseen.clear();
  }

  take(kind) {
    const seen = this.#unseen.get(kind) ?? [];
    this.#unseen.delete(kind);
    return seen;
  }

  async until(kind, timeoutMs) {
    const deadline = Date.now() + timeoutMs;
    while (!this.#unseen.has(kind)) {
      const left = deadline - Date.now();
      if (left <= 0) throw new TimedOut(`no ${kind} in ${timeoutMs} ms`);
      let timer;
      await new Promise((resolve) => {
        this.#wake = resolve;
        timer = setTimeout(resolve, left);
      });
      clearTimeout(timer);
    }
    return { count: this.take(kind).length };
  }
}

/** What a user would put into a form. */
function filled({ properties = {} }) {
  const fill = (name, { type, enum: choices, const: only }) =>
    only ?? choices?.[0] ?? { boolean: true, number: 1, integer: 1 }[type] ?? `a ${name}`;
  return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, fill(name, schema)]));
}

/** How the client answers what a server asks it, and `asked`: the methods, in order. */
class Answers {
  asked = [];

  elicitation = async ({ params }) => {
    this.asked.push(params.mode === 'url' ? 'elicitation/create url' : 'elicitation/create');
    return params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: filled(params.requestedSchema) };
  };

  sampling = async ({ params }) => {
    this.asked.push('sampling/createMessage');
    const { content } = params.messages.at(-1);
    const text = `sampled: ${[content].flat()[0].text}`;
    return { role: 'assistant', model: 'a-model', stopReason: 'endTurn', content: { type: 'text', text } };
  };

  roots = async () => {
    this.asked.push('roots/list');
    return { roots: [{ uri: 'file:///a/root', name: 'a root' }] };
  };
}

export const CAPABILITIES = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } };

/** Lists, and starts again if the list has changed since its first page: replicas learn of a change one after the other. */
export async function listing(list) {
  for (let tries = 0; tries < STALE_LISTS; tries += 1) {
    try {
      return await list();
    } catch (error) {
      if (!String(error).includes('stale cursor')) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, RELIST_MS));
  }
  return list();
}

// Times that a list is begun anew, and the time before.
const STALE_LISTS = 20;
const RELIST_MS = 100;

/** Walks the pages of a list: `next` gets a cursor, and gives a page's items and the next cursor. */
export function pages(next) {
  return listing(() => pagesOnce(next));
}

async function pagesOnce(next) {
  const items = [];
  let count = 0;
  let cursor;
  do {
    const [more, following] = await next(cursor === undefined ? undefined : { cursor });
    items.push(...more);
    count += 1;
    cursor = following;
  } while (cursor !== undefined);
  return { items, pages: count };
}

const OPS = {
  async list(peer) {
    const { items, pages } = await peer.listTools();
    return { names: items.map((tool) => tool.name), tools: items, pages };
  },
  list_prompts: (peer) => peer.listPrompts(),
  list_resources: (peer) => peer.listResources(),
  list_templates: (peer) => peer.listTemplates(),
  get_prompt: (peer, { name, arguments: given }) => peer.getPrompt({ name, arguments: given ?? {} }),
  read: (peer, { uri }) => peer.read({ uri }),
  complete: (peer, { ref, argument }) => peer.complete({ ref, argument }),
  subscribe: async (peer, { uri }) => (await peer.subscribe(uri), {}),

  // With `progress`, `asked` or `log_level` gives those of this call beside its result.
  async call(peer, step) {
    if (!step.progress && !step.asked && !step.log_level) return peer.call(step, {});
    const progress = [];
    peer.heard.take('log');
    peer.answers.asked = [];
    if (step.log_level) await peer.logFrom(step.log_level);
    const result = await peer.call(step, { onprogress: step.progress && ((seen) => progress.push(seen)) });
    await sleep(step.settle_ms ?? 0);
    return {
      result,
      ...(step.progress && { progress }),
      ...(step.asked && { asked: peer.answers.asked }),
      ...(step.log_level && { logs: peer.heard.take('log') }),
    };
  },

  // Has the call become a task; gives what it was when it began, and what came of it.
  call_task: (peer, step) => peer.callTask(step),

  // Gives the cancellation `settle_ms` to get away before the next step.
  async call_cancel(peer, step) {
    const cancel = new AbortController();
    const progress = [];
    const started = Date.now();
    const onprogress = (seen) => {
      progress.push(seen);
      if (progress.length === step.after_progress) cancel.abort('cancelled by the driver');
    };
    const timer = step.after_progress ? undefined : setTimeout(() => cancel.abort('cancelled by the driver'), step.after_ms ?? 300);
    try {
      const result = await peer.call(step, { onprogress, signal: cancel.signal });
      return { cancelled: false, result, progress, elapsed_ms: Date.now() - started };
    } catch (thrown) {
      if (!cancel.signal.aborted) throw thrown;
      const elapsed_ms = Date.now() - started;
      await sleep(step.settle_ms ?? 200);
      return { cancelled: true, error: asError(thrown), progress, elapsed_ms };
    } finally {
      clearTimeout(timer);
    }
  },

  wait_list_changed: (peer, step) => peer.heard.until('tools', step.timeout_ms ?? 5000),

  // `for` is what to wait for, a kind that Heard knows; the list of tools unless given.
  async call_and_wait_list_changed(peer, step) {
    peer.heard.forget();
    const result = await peer.call(step, {});
    return { result, ...(await peer.heard.until(step.for ?? 'tools', step.timeout_ms ?? 5000)) };
  },

  ping: async (peer) => (await peer.ping()) ?? {},

  async sleep(peer, step) {
    await sleep(step.ms ?? 100);
    return {};
  },

  async close(peer) {
    await peer.close();
    return {};
  },
};

async function bounded(work) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new TimedOut(`not done in ${STEP_MS} ms`)), STEP_MS);
  });
  return Promise.race([work, limit]).finally(() => clearTimeout(timer));
}

function boundWholeRun() {
  setTimeout(() => {
    process.stderr.write(`driver: not done in ${WHOLE_RUN_MS} ms\n`);
    process.exit(124);
  }, WHOLE_RUN_MS).unref();
}

/**
 * Runs a driver. `connect(options)` gets {url, era, headers, heard, answers, listens} and
 * resolves to a peer: {info, call(step, options), …}, see OPS for what it has; `listens`
 * says whether a step will wait for a list to change.
 */
export async function drive(supportedEras, connect) {
  const options = readCommandLine(supportedEras);
  if (!options.lines) boundWholeRun();
  const steps = options.lines ? readLines() : await readSteps();

  const heard = new Heard();
  const answers = new Answers();
  const listens = !options.lines && steps.some((step) => step.op.includes('wait_list_changed'));
  let peer;
  try {
    peer = await bounded(connect({ ...options, heard, answers, listens }));
    Object.assign(peer, { heard, answers });
    print({ step: 0, op: 'connect', ok: true, result: peer.info });
  } catch (thrown) {
    print({ step: 0, op: 'connect', ok: false, error: asError(thrown) });
  }

  let number = 0;
  for await (const step of steps) {
    number += 1;
    const head = { step: number, op: step.op };
    try {
      if (peer === undefined) throw new Error('not connected');
      print({ ...head, ok: true, result: await bounded(OPS[step.op](peer, step)) });
    } catch (thrown) {
      print({ ...head, ok: false, error: asError(thrown) });
    }
    if (step.op === 'close') peer = undefined;
  }
  await Promise.race([peer?.close().catch(() => {}), sleep(2000)]);
  process.stdout.write('', () => process.exit(0));
}
