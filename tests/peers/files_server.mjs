// A server on the official TypeScript SDK 2.x whose files are a resource template, over standard
// streams, in both eras. The SDK parses the URI of a read as the WHATWG does: it deletes tabs and
// line ends, and resolves what is left.
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

serveStdio(() => {
  const sdk = new McpServer(
    { name: 'files', version: '1' },
    { capabilities: { resources: { subscribe: true, listChanged: true } } },
  );
  const files = new ResourceTemplate('file:///{+path}', { list: undefined });
  sdk.registerResource('files', files, {}, (uri) => ({ contents: [{ uri: uri.href, text: `read ${uri.href}` }] }));
  sdk.server.setRequestHandler('resources/subscribe', () => ({}));
  sdk.server.setRequestHandler('resources/unsubscribe', () => ({}));
  return sdk;
});
