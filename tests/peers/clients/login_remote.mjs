// Logs in at a gateway with no help through mcp-remote, as a host does that can only start
// programs: it follows the link that mcp-remote prints for a person.
//
//     node login_remote.mjs URL TOOL...
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

import { follow } from './follower.mjs';

const [url, ...steps] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'mcp-remote-'));
const proxy = createRequire(import.meta.url).resolve('mcp-remote/dist/proxy.js');
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const asked = [];

const transport = new StdioClientTransport({
  command: process.execPath,
  args: [proxy, url, '--transport', 'http-only'],
  // There is no browser.
  env: { PATH: '/nonexistent', HOME: folder, MCP_REMOTE_CONFIG_DIR: folder, BROWSER: 'none' },
  stderr: 'pipe',
});
let said = '';
transport.stderr.on('data', (piece) => {
  said += piece;
  for (const [, link] of said.matchAll(/authorize this client by visiting:\s+(http\S+)\s/g)) {
    if (asked.some((known) => known.link === link)) continue;
    const query = new URL(link).searchParams;
    asked.push({ link, scope: query.get('scope') });
    const callback = query.get('redirect_uri');
    follow(link, callback)
      .then((answer) => fetch(`${callback}?${answer}`))
      .catch((error) => print({ error: `${error?.stack ?? error}` }));
  }
});
const client = new Client({ name: 'a-host', version: '1' }, { capabilities: {} });
try {
  await client.connect(transport, { timeout: 60_000 });
  const { tools } = await client.listTools();
  print({ tools: tools.map((tool) => tool.name) });
  for (const step of steps) {
    if (step.startsWith('wait:')) {
      await new Promise((over) => setTimeout(over, Number(step.slice(5))));
      continue;
    }
    const result = await client.callTool({ name: step, arguments: {} }, undefined, { timeout: 60_000 });
    print({ called: step, text: result.content[0].text, isError: result.isError ?? false });
  }
  print({ asked: asked.map(({ scope }) => scope) });
} catch (error) {
  print({ error: `${error?.stack ?? error}\n${said}` });
}
await client.close().catch(() => {});
rmSync(folder, { recursive: true, force: true });
process.exit(0);
