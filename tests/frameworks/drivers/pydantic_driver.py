"""pydantic-ai: `MCPToolset`."""

from contextlib import asynccontextmanager

from fastmcp.client.transports import StdioTransport
from protocol import RESULT, Client, drive, text_of
from pydantic_ai.mcp import MCPToolset


@asynccontextmanager
async def connect(target):
    if target.url:
        client = target.url
    else:
        # By default the process outlives the toolset.
        client = StdioTransport(**target.process, keep_alive=False)
    async with MCPToolset(client, tool_error_behavior="error") as toolset:

        async def list_tools():
            return [tool.name for tool in await toolset.list_tools()]

        async def call_tool(name, arguments):
            return text_of(await toolset.direct_call_tool(name, arguments)), RESULT

        yield Client(list_tools, call_tool)


drive(connect)
