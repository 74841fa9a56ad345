// A server on the official TypeScript SDK, of either major version, over standard streams. It has the
// resources and templates of its second argument, and says in each read which of them it is.
//
//     node resources_server.mjs 1|2 '{"resources": ["file:///a"], "templates": ["file:///{+path}"]}'
const [version, said] = process.argv.slice(2);
const { resources, templates } = JSON.parse(said);

async function load() {
  if (version === '1') {
    const { McpServer, ResourceTemplate } = await import('@modelcontextprotocol/sdk/server/mcp.js');
    const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
    return { McpServer, ResourceTemplate, serve: (make) => make().connect(new StdioServerTransport()) };
  }
  const { McpServer, ResourceTemplate } = await import('@modelcontextprotocol/server');
  const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
  return { McpServer, ResourceTemplate, serve: serveStdio };
}

const { McpServer, ResourceTemplate, serve } = await load();
await serve(() => {
  const sdk = new McpServer({ name: 'resources', version: '1' }, { capabilities: { resources: {} } });
  const tell = (element) => (uri) => ({ contents: [{ uri: uri.href, text: element }] });
  for (const uri of resources) sdk.registerResource(uri, uri, {}, tell(uri));
  for (const text of templates) {
    sdk.registerResource(text, new ResourceTemplate(text, { list: undefined }), {}, tell(text));
  }
  return sdk;
});
