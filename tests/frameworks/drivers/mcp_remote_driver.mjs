// mcp-remote, started by a host on the TypeScript SDK 1.x. It leads to a URL, never to a command.
import { createRequire } from 'node:module';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

import { drive, textOf } from './protocol.mjs';

const proxy = createRequire(import.meta.url).resolve('mcp-remote/dist/proxy.js');

await drive(async ({ url, env }) => {
  const client = new Client({ name: 'host', version: '1' });
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [proxy, url], env, stderr: 'inherit' }));
  return {
    listTools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    async callTool(name, args) {
      const result = await client.callTool({ name, arguments: args });
      return { text: textOf(result.content), failed: result.isError };
    },
    close: () => client.close(),
  };
});
