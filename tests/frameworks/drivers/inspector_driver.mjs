// The Inspector's CLI: a process and a connection for each step.
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { drive, textOf } from './protocol.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '../node_modules/@modelcontextprotocol/inspector');
const { bin } = createRequire(import.meta.url)(join(root, 'package.json'));

function run(words) {
  const options = { maxBuffer: 64 << 20 };
  return new Promise((resolve) => {
    execFile(process.execPath, [join(root, bin['mcp-inspector']), '--cli', ...words], options, (fault, out, err) =>
      resolve({ code: fault ? (fault.code ?? 1) : 0, out, err }),
    );
  });
}

async function ask(target, words) {
  // Words of the server's command that begin with a dash come behind `--`.
  const command = target.url ? [target.url, ...words] : [...words, '--', target.command, ...target.args];
  const { code, out, err } = await run(command);
  let answer;
  try {
    answer = JSON.parse(out);
  } catch {
    throw new Error(`exit ${code}: ${err || out}`);
  }
  return answer;
}

await drive(async (target) => ({
  listTools: async () => (await ask(target, ['--method', 'tools/list'])).tools.map((tool) => tool.name),
  async callTool(name, args) {
    const pairs = Object.entries(args).flatMap(([key, value]) => ['--tool-arg', `${key}=${value}`]);
    const result = await ask(target, ['--method', 'tools/call', '--tool-name', name, ...pairs]);
    return { text: textOf(result.content), failed: result.isError };
  },
  close: async () => {},
}));
