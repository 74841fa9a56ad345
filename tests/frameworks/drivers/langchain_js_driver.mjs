// @langchain/mcp-adapters: MultiServerMCPClient.
import { MultiServerMCPClient } from '@langchain/mcp-adapters';

import { drive, textOf } from './protocol.mjs';

await drive(async ({ url, command, args, env }) => {
  const server = url ? { transport: 'http', url } : { transport: 'stdio', command, args, env };
  const client = new MultiServerMCPClient({ mcpServers: { server } });
  let tools = await client.getTools();
  return {
    async listTools() {
      tools = await client.getTools();
      return tools.map((tool) => tool.name);
    },
    async callTool(name, args) {
      return { text: textOf(await tools.find((tool) => tool.name === name).invoke(args)) };
    },
    close: () => client.close(),
  };
});
