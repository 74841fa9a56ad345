// An MCP server on the TypeScript SDK 1.x that takes requests with a token of an authorization server
// only: the SDK's own `requireBearerAuth` and metadata.
//
//     node guarded_server.mjs ISSUER
//
// Prints `{"port": N}` once it listens. Its tool `whoami` tells the digest of the token of the call.
import { createHash } from 'node:crypto';

import { requireBearerAuth } from '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js';
import { getOAuthProtectedResourceMetadataUrl, mcpAuthMetadataRouter } from '@modelcontextprotocol/sdk/server/auth/router.js';
import { InvalidTokenError } from '@modelcontextprotocol/sdk/server/auth/errors.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express from 'express';
import { createRemoteJWKSet, jwtVerify } from 'jose';

const issuer = process.argv[2];
const oauthMetadata = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json();
const keys = createRemoteJWKSet(new URL(oauthMetadata.jwks_uri));
const app = express();
const listener = app.listen(0, '127.0.0.1', () => {
  const { port } = listener.address();
  const resourceServerUrl = new URL(`http://127.0.0.1:${port}/mcp`);
  app.use(mcpAuthMetadataRouter({ oauthMetadata, resourceServerUrl, scopesSupported: ['mcp:read'] }));
  const verifier = {
    async verifyAccessToken(token) {
      const { payload } = await jwtVerify(token, keys, { issuer, audience: resourceServerUrl.href }).catch((fault) => {
        throw new InvalidTokenError(fault.message);
      });
      return { token, clientId: payload.client_id, scopes: payload.scope.split(' '), expiresAt: payload.exp };
    },
  };
  const resourceMetadataUrl = getOAuthProtectedResourceMetadataUrl(resourceServerUrl);
  app.use('/mcp', requireBearerAuth({ verifier, requiredScopes: ['mcp:read'], resourceMetadataUrl }), express.json());
  app.post('/mcp', async (request, response) => {
    const server = new McpServer({ name: 'guarded', version: '1.0.0' });
    server.registerTool('whoami', { description: 'Whose token it is' }, async (extra) => {
      const digest = createHash('sha256').update(extra.authInfo.token).digest('hex');
      return { content: [{ type: 'text', text: digest }] };
    });
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    response.on('close', () => Promise.all([transport.close(), server.close()]));
    await server.connect(transport);
    await transport.handleRequest(request, response, request.body);
  });
  app.all('/mcp', (_, response) => response.status(405).end());
  process.stdout.write(`${JSON.stringify({ port })}\n`);
});
