"""autogen-ext: `McpWorkbench`."""

from contextlib import asynccontextmanager

from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams
from protocol import ERROR_RESULT, RESULT, Client, drive


@asynccontextmanager
async def connect(target):
    # The default of the second is 5 s.
    if target.url:
        params = StreamableHttpServerParams(url=target.url)
    else:
        params = StdioServerParams(**target.process, read_timeout_seconds=30)
    async with McpWorkbench(params) as workbench:

        async def list_tools():
            return [tool["name"] for tool in await workbench.list_tools()]

        async def call_tool(name, arguments):
            result = await workbench.call_tool(name, arguments)
            return result.to_text(), ERROR_RESULT if result.is_error else RESULT

        yield Client(list_tools, call_tool)


drive(connect)
