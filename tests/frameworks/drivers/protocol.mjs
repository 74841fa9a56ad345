// What the JavaScript drivers share: see protocol.py. `connect` gets the target and gives an object
// with listTools(), callTool(name, arguments) and close().
import { createInterface } from 'node:readline';
import { writeSync } from 'node:fs';

const STEP_MS = 60_000;

// Frameworks print to standard output; that stream is for results alone.
console.log = console.info = console.debug = console.warn = console.error;

export const report = (op, fields = {}) => writeSync(1, JSON.stringify({ op, ok: true, ...fields }) + '\n');

function readTarget() {
  const given = process.argv[2];
  if (!given.startsWith('stdio:')) return { url: given, env: process.env };
  const [command, ...args] = JSON.parse(given.slice('stdio:'.length));
  return { command, args, env: process.env };
}

async function takeStep(client, step) {
  if (step.op === 'list') return { names: await client.listTools() };
  const { text, failed } = await client.callTool(step.name, step.arguments ?? {});
  return { text, is_error: failed ?? false };
}

async function bounded(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${STEP_MS} ms`)), STEP_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export const describe = (thrown) => `${thrown?.name ?? 'Error'}: ${thrown?.message ?? thrown}`.slice(0, 2000);

/** The text of content blocks, whatever the framework made of them. */
export function textOf(content) {
  if (typeof content === 'string') return content;
  if (Array.isArray(content)) return content.map(textOf).join('\n');
  return typeof content?.text === 'string' ? content.text : JSON.stringify(content);
}

export async function drive(connect) {
  let underWay = 'connect';
  try {
    const client = await connect(readTarget());
    report('connect');
    for await (const line of createInterface({ input: process.stdin })) {
      const step = JSON.parse(line);
      try {
        report(step.op, await bounded(takeStep(client, step)));
      } catch (thrown) {
        report(step.op, { ok: false, error: describe(thrown) });
      }
    }
    underWay = 'close';
    await client.close();
    report('close');
  } catch (thrown) {
    report(underWay, { ok: false, error: describe(thrown) });
    process.exitCode = 1;
  }
}
