// @ai-sdk/mcp, of the Vercel AI SDK.
import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport as StdioTransport } from '@ai-sdk/mcp/mcp-stdio';

import { drive, textOf } from './protocol.mjs';

await drive(async ({ url, command, args, env }) => {
  const client = await createMCPClient({ transport: url ? { type: 'http', url } : new StdioTransport({ command, args, env }) });
  let tools = {};
  return {
    async listTools() {
      tools = await client.tools();
      return Object.keys(tools);
    },
    async callTool(name, args) {
      const result = await tools[name].execute(args, { toolCallId: '1', messages: [] });
      return { text: textOf(result.content ?? result), failed: result.isError };
    },
    close: () => client.close(),
  };
});
