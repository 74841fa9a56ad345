"""agno: `MCPTools`, whose functions an agent calls."""

from contextlib import asynccontextmanager

from agno.tools.mcp import MCPTools
from mcp import StdioServerParameters
from protocol import ERROR_RESULT, RESULT, Client, drive, text_of


@asynccontextmanager
async def connect(target):
    if target.url:
        tools = MCPTools(transport="streamable-http", url=target.url, timeout_seconds=30)
    else:
        # `command=` takes only programs of a list of agno's own, such as npx and uvx.
        server = StdioServerParameters(**target.process)
        tools = MCPTools(transport="stdio", server_params=server, timeout_seconds=30)
    async with tools:

        async def list_tools():
            tools.functions.clear()
            await tools.build_tools()
            return list(tools.functions)

        async def call_tool(name, arguments):
            result = await tools.functions[name].entrypoint(**arguments)
            text = text_of(getattr(result, "content", result))
            return text, ERROR_RESULT if text.startswith("Error") else RESULT

        yield Client(list_tools, call_tool)


drive(connect)
