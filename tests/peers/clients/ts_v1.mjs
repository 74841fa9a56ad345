// A client on the TypeScript SDK 1.x, which speaks Legacy only.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

import { commandIn, drive, watchGetStream } from './driver.mjs';

await drive(['legacy', 'auto'], async ({ url, headers, listChanged, listens }) => {
  const client = new Client({ name: 'trunkline-ts-v1', version: '1.0.0' });
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => listChanged.arrived());
  const { fetch, opened } = watchGetStream();
  const command = commandIn(url);
  const transport = command
    ? new StdioClientTransport(command)
    : new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers }, fetch });
  await client.connect(transport);
  if (listens && !command) await opened();
  return {
    info: {
      era: 'legacy',
      protocolVersion: transport.protocolVersion ?? null,
      sessionId: transport.sessionId ?? null,
      serverInfo: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions() ?? null,
    },
    async listTools() {
      const tools = [];
      let cursor;
      do {
        const page = await client.listTools(cursor === undefined ? undefined : { cursor });
        tools.push(...page.tools);
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      return tools;
    },
    call: ({ name, arguments: args }, options) => client.callTool({ name, arguments: args ?? {} }, undefined, options),
    ping: () => client.ping(),
    async close() {
      await transport.terminateSession?.();
      await client.close();
    },
  };
});
