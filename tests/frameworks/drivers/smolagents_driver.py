"""smolagents: `MCPClient`, which lists once when it connects."""

import asyncio
from contextlib import asynccontextmanager

from mcp import StdioServerParameters
from protocol import RESULT, Client, drive, text_of
from smolagents import MCPClient


@asynccontextmanager
async def connect(target):
    if target.url:
        params = {"url": target.url, "transport": "streamable-http"}
    else:
        params = StdioServerParameters(**target.process)
    client = await asyncio.to_thread(MCPClient, params, structured_output=False)

    async def list_tools():
        return [tool.name for tool in client.get_tools()]

    async def call_tool(name, arguments):
        tool = next(tool for tool in client.get_tools() if tool.name == name)
        return text_of(await asyncio.to_thread(tool.forward, **arguments)), RESULT

    try:
        yield Client(list_tools, call_tool)
    finally:
        await asyncio.to_thread(client.disconnect)


drive(connect)
