// A client on the TypeScript SDK 1.x, which speaks Legacy only.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  PromptListChangedNotificationSchema,
  ResourceListChangedNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

import { CAPABILITIES, commandIn, drive, pages, sseIn, watchGetStream } from './driver.mjs';

await drive(['legacy', 'auto'], async ({ url, headers, heard, answers, listens }) => {
  const client = new Client({ name: 'trunkline-ts-v1', version: '1.0.0' }, { capabilities: CAPABILITIES });
  client.setRequestHandler(ElicitRequestSchema, answers.elicitation);
  client.setRequestHandler(CreateMessageRequestSchema, answers.sampling);
  client.setRequestHandler(ListRootsRequestSchema, answers.roots);
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => heard.arrived('tools'));
  client.setNotificationHandler(PromptListChangedNotificationSchema, () => heard.arrived('prompts'));
  client.setNotificationHandler(ResourceListChangedNotificationSchema, () => heard.arrived('resources'));
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => heard.arrived(`updated ${params.uri}`));
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => heard.arrived('log', params));
  const { fetch, opened } = watchGetStream();
  const command = commandIn(url);
  const sse = sseIn(url);
  const transport = command
    ? new StdioClientTransport(command)
    : sse
      ? new SSEClientTransport(sse, { requestInit: { headers } })
      : new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers }, fetch });
  await client.connect(transport);
  if (listens && !command && !sse) await opened();
  return {
    info: {
      era: 'legacy',
      protocolVersion: transport.protocolVersion ?? null,
      sessionId: transport.sessionId ?? null,
      serverInfo: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions() ?? null,
    },
    listTools: () => pages((at) => client.listTools(at).then((page) => [page.tools, page.nextCursor])),
    listPrompts: () => pages((at) => client.listPrompts(at).then((page) => [page.prompts, page.nextCursor])),
    listResources: () => pages((at) => client.listResources(at).then((page) => [page.resources, page.nextCursor])),
    listTemplates: () =>
      pages((at) => client.listResourceTemplates(at).then((page) => [page.resourceTemplates, page.nextCursor])),
    call: ({ name, arguments: args }, options) => client.callTool({ name, arguments: args ?? {} }, undefined, options),
    async callTask({ name, arguments: args }) {
      const told = [];
      const task = { ttl: 60_000 };
      const stream = client.experimental.tasks.callToolStream({ name, arguments: args ?? {} }, undefined, { task });
      for await (const message of stream) {
        if (message.type === 'error') throw message.error;
        told.push(message);
      }
      const { result } = told.at(-1);
      const ended = await client.experimental.tasks.getTask(told[0].task.taskId);
      return { begun: told[0].task, ended: { status: ended.status, result } };
    },
    getPrompt: (params) => client.getPrompt(params),
    read: (params) => client.readResource(params),
    complete: (params) => client.complete(params),
    subscribe: (uri) => client.subscribeResource({ uri }),
    logFrom: (level) => client.setLoggingLevel(level),
    ping: () => client.ping(),
    async close() {
      await transport.terminateSession?.();
      await client.close();
    },
  };
});
