// @openai/agents: MCPServerStreamableHttp and MCPServerStdio.
import { MCPServerStdio, MCPServerStreamableHttp } from '@openai/agents';

import { drive, textOf } from './protocol.mjs';

await drive(async ({ url, command, args, env }) => {
  // The default is 5 s, which a tool may well take.
  const patience = { clientSessionTimeoutSeconds: 30 };
  const server = url
    ? new MCPServerStreamableHttp({ url, ...patience })
    : new MCPServerStdio({ command, args, env, ...patience });
  await server.connect();
  return {
    async listTools() {
      await server.invalidateToolsCache();
      return (await server.listTools()).map((tool) => tool.name);
    },
    async callTool(name, args) {
      return { text: textOf(await server.callTool(name, args)) };
    },
    close: () => server.close(),
  };
});
