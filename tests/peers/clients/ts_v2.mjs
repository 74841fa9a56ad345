// A client on the TypeScript SDK 2.x, which speaks both eras.
import { Client, LOG_LEVEL_META_KEY, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { CAPABILITIES, commandIn, drive, listing, sseIn, watchGetStream } from './driver.mjs';

const MODE = { legacy: 'legacy', modern: { pin: '2026-07-28' }, auto: 'auto' };
// Asks the server, and not the SDK's own cache.
const AFRESH = { cacheMode: 'refresh' };

await drive(['legacy', 'modern', 'auto'], async ({ url, era, headers, heard, answers, listens }) => {
  const client = new Client(
    { name: 'trunkline-ts-v2', version: '1.0.0' },
    { capabilities: CAPABILITIES, versionNegotiation: { mode: MODE[era] } },
  );
  client.setRequestHandler('elicitation/create', answers.elicitation);
  client.setRequestHandler('sampling/createMessage', answers.sampling);
  client.setRequestHandler('roots/list', answers.roots);
  client.setNotificationHandler('notifications/tools/list_changed', () => heard.arrived('tools'));
  client.setNotificationHandler('notifications/prompts/list_changed', () => heard.arrived('prompts'));
  client.setNotificationHandler('notifications/resources/list_changed', () => heard.arrived('resources'));
  client.setNotificationHandler('notifications/resources/updated', ({ params }) => heard.arrived(`updated ${params.uri}`));
  client.setNotificationHandler('notifications/message', ({ params }) => heard.arrived('log', params));
  const { fetch, opened } = watchGetStream();
  const command = commandIn(url);
  const sse = sseIn(url);
  const transport = command
    ? new StdioClientTransport(command)
    : sse
      ? new SSEClientTransport(sse, { requestInit: { headers } })
      : new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers }, fetch });
  await client.connect(transport);
  const modern = client.getProtocolEra() === 'modern';
  const subscriptions = [];
  const listen = async (filter) => subscriptions.push(await client.listen(filter));
  if (modern && listens) {
    await listen({ toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true });
  }
  if (!modern && listens && !command && !sse) await opened();
  let meta = {};
  return {
    info: {
      era: client.getProtocolEra(),
      protocolVersion: client.getNegotiatedProtocolVersion(),
      sessionId: transport.sessionId ?? null,
      serverInfo: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions() ?? null,
    },
    // The SDK walks all pages by itself, and does not say how many there were.
    listTools: async () => ({ items: (await listing(() => client.listTools(undefined, AFRESH))).tools }),
    listPrompts: async () => ({ items: (await listing(() => client.listPrompts(undefined, AFRESH))).prompts }),
    listResources: async () => ({ items: (await listing(() => client.listResources(undefined, AFRESH))).resources }),
    listTemplates: async () => ({ items: (await listing(() => client.listResourceTemplates(undefined, AFRESH))).resourceTemplates }),
    call: ({ name, arguments: args }, options) => client.callTool({ name, arguments: args ?? {}, ...meta }, options),
    getPrompt: (params) => client.getPrompt(params),
    read: (params) => client.readResource(params, AFRESH),
    complete: (params) => client.complete(params),
    subscribe: (uri) => (modern ? listen({ resourceSubscriptions: [uri] }) : client.subscribeResource({ uri })),
    async logFrom(level) {
      if (modern) meta = { _meta: { [LOG_LEVEL_META_KEY]: level } };
      else await client.setLoggingLevel(level);
    },
    ping: () => client.ping(),
    async close() {
      for (const subscription of subscriptions) await subscription.close();
      if (!modern) await transport.terminateSession?.();
      await client.close();
    },
  };
});
