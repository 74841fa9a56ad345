// What the TypeScript drivers share: the command line, the steps, the lines they
// print. README.md, next folder up, describes both. An SDK's own part is an
// object that connect() returns: see ts_v1.mjs and ts_v2.mjs.

const WHOLE_RUN_MS = 60_000;
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
  const options = { url: undefined, era: 'auto', headers: {} };
  const words = process.argv.slice(2);
  while (words.length > 0) {
    const word = words.shift();
    if (word === '--era') options.era = words.shift();
    else if (word === '--header') {
      const [, name, value] = /^([^:]+):\s*(.*)$/.exec(words.shift() ?? '') ?? fault('--header takes NAME: VALUE');
      options.headers[name] = value;
    } else if (word.startsWith('-') || options.url !== undefined) fault(`what is ${word}?`);
    else options.url = word;
  }
  if (options.url === undefined) fault('usage: DRIVER URL [--era legacy|modern|auto] [--header "NAME: VALUE"] < STEPS');
  if (!ERAS.includes(options.era)) fault(`no such era: ${options.era}`);
  if (!supported.includes(options.era)) fault(`this SDK has no ${options.era} era`);
  return options;
}

async function readSteps() {
  let text = '';
  for await (const chunk of process.stdin) text += chunk;
  const steps = text.trim() === '' ? [] : JSON.parse(text);
  if (!Array.isArray(steps)) fault('the steps are not an array');
  return steps;
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

/** Counts list-changed notifications; await until() for one that nobody has waited for yet. */
class ListChanged {
  #unseen = 0;
  #wake = () => {};

  arrived() {
    this.#unseen += 1;
    this.#wake();
  }

  forget() {
    this.#unseen = 0;
  }

  async until(timeoutMs) {
    if (this.#unseen === 0) {
      let timer;
      await new Promise((resolve, reject) => {
        this.#wake = resolve;
        timer = setTimeout(() => reject(new TimedOut(`no list_changed in ${timeoutMs} ms`)), timeoutMs);
      }).finally(() => {
        clearTimeout(timer);
        this.#wake = () => {};
      });
    }
    const count = this.#unseen;
    this.#unseen = 0;
    return { count };
  }
}

const OPS = {
  async list(peer) {
    const tools = await peer.listTools();
    return { names: tools.map((tool) => tool.name), tools };
  },

  async call(peer, step) {
    if (!step.progress) return peer.call(step, {});
    const progress = [];
    const result = await peer.call(step, { onprogress: (seen) => progress.push(seen) });
    return { result, progress };
  },

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

  wait_list_changed: (peer, step) => peer.listChanged.until(step.timeout_ms ?? 5000),

  async call_and_wait_list_changed(peer, step) {
    peer.listChanged.forget();
    const result = await peer.call(step, {});
    return { result, ...(await peer.listChanged.until(step.timeout_ms ?? 5000)) };
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

/**
 * Runs a driver. `connect(options)` gets {url, era, headers, listChanged, listens}
 * and resolves to {info, listTools(), call(step, options), ping(), close()};
 * `listens` says whether a step will wait for list_changed.
 */
export async function drive(supportedEras, connect) {
  setTimeout(() => {
    process.stderr.write(`driver: not done in ${WHOLE_RUN_MS} ms\n`);
    process.exit(124);
  }, WHOLE_RUN_MS).unref();
  const options = readCommandLine(supportedEras);
  const steps = await readSteps();
  for (const step of steps) if (!Object.hasOwn(OPS, step.op)) fault(`no such op: ${step.op}`);

  const listChanged = new ListChanged();
  const listens = steps.some((step) => step.op.includes('wait_list_changed'));
  let peer;
  try {
    peer = await connect({ ...options, listChanged, listens });
    peer.listChanged = listChanged;
    print({ step: 0, op: 'connect', ok: true, result: peer.info });
  } catch (thrown) {
    print({ step: 0, op: 'connect', ok: false, error: asError(thrown) });
  }

  for (const [index, step] of steps.entries()) {
    const head = { step: index + 1, op: step.op };
    try {
      if (peer === undefined) throw new Error('not connected');
      print({ ...head, ok: true, result: await OPS[step.op](peer, step) });
    } catch (thrown) {
      print({ ...head, ok: false, error: asError(thrown) });
    }
    if (step.op === 'close') peer = undefined;
  }
  await peer?.close().catch(() => {});
  process.stdout.write('', () => process.exit(0));
}
