// Logs in at a gateway with no help through mcp-remote, as a host does that can only start
// programs: it follows the link that mcp-remote prints for a person.
//
//     node login_remote.mjs legacy|auto URL STEP...
//
// A step is the name of a tool, `wait:MS`, or `revoke`.
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

import { follow } from './follower.mjs';

const [protocol, url, ...steps] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'mcp-remote-'));
const proxy = createRequire(import.meta.url).resolve('mcp-remote/dist/proxy.js');
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const asked = [];

/** What mcp-remote has stored under a name that ends like this. */
function stored(ending) {
  const file = readdirSync(folder, { recursive: true }).find((path) => path.endsWith(ending));
  return JSON.parse(readFileSync(join(folder, file), 'utf8'));
}

/** Revokes the refresh token, as a user does who signs out elsewhere. */
async function revoke() {
  const form = { token: stored('_tokens.json').refresh_token, client_id: stored('_client_info.json').client_id };
  const revocation = new URL('/token/revocation', asked[0].link);
  const response = await fetch(revocation, { method: 'POST', body: new URLSearchParams(form) });
  if (!response.ok) throw new Error(`revocation: ${response.status}`);
}

/** A port that is free, and that the kernel gives to nobody who asks for any. The one that mcp-remote
 * chooses by itself may be in use at the first login and free at the second, which then waits there
 * for an answer that the authorization server sends to the other. */
async function freePort() {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    const free = await new Promise((tell) => {
      const server = createServer().on('error', () => tell(false));
      server.listen(port, () => server.close(() => tell(true)));
    });
    if (free) return port;
  }
}

/** Brings an answer to mcp-remote, as soon as it listens. Nobody waits for one that its own stream has
 * asked for. */
async function deliver(answer) {
  for (let tries = 0; tries < 100; tries += 1) {
    const arrived = await fetch(answer).catch(() => undefined);
    if (arrived) return;
    await new Promise((over) => setTimeout(over, 200));
  }
}

const transport = new StdioClientTransport({
  command: process.execPath,
  args: [proxy, url, `${await freePort()}`, '--transport', 'http-only', '--protocol', protocol],
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
    // As late as a person.
    setTimeout(() => {
      follow(link, callback)
        .then((answer) => deliver(`${callback}?${answer}`))
        .catch((error) => print({ error: `${error?.stack ?? error}` }));
    }, 500);
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
    if (step === 'revoke') {
      await revoke();
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
