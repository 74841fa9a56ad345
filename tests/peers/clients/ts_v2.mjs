// A client on the TypeScript SDK 2.x, which speaks both eras.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { commandIn, drive, watchGetStream } from './driver.mjs';

const MODE = { legacy: 'legacy', modern: { pin: '2026-07-28' }, auto: 'auto' };

await drive(['legacy', 'modern', 'auto'], async ({ url, era, headers, listChanged, listens }) => {
  const client = new Client({ name: 'trunkline-ts-v2', version: '1.0.0' }, { versionNegotiation: { mode: MODE[era] } });
  client.setNotificationHandler('notifications/tools/list_changed', () => listChanged.arrived());
  const { fetch, opened } = watchGetStream();
  const command = commandIn(url);
  const transport = command
    ? new StdioClientTransport(command)
    : new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers }, fetch });
  await client.connect(transport);
  const modern = client.getProtocolEra() === 'modern';
  const subscription = modern && listens ? await client.listen({ toolsListChanged: true }) : undefined;
  if (!modern && listens && !command) await opened();
  return {
    info: {
      era: client.getProtocolEra(),
      protocolVersion: client.getNegotiatedProtocolVersion(),
      sessionId: transport.sessionId ?? null,
      serverInfo: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions() ?? null,
    },
    // Walks all pages by itself; 'refresh' asks the server and not its own cache.
    listTools: async () => (await client.listTools(undefined, { cacheMode: 'refresh' })).tools,
    call: ({ name, arguments: args }, options) => client.callTool({ name, arguments: args ?? {} }, options),
    ping: () => client.ping(),
    async close() {
      await subscription?.close();
      if (!modern) await transport.terminateSession?.();
      await client.close();
    },
  };
});
