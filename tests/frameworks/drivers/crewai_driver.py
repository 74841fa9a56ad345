"""crewai: `MCPServerAdapter` of crewai-tools, which lists once when it connects."""

import asyncio
from contextlib import asynccontextmanager

from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters
from protocol import RESULT, Client, drive, text_of


@asynccontextmanager
async def connect(target):
    if target.url:
        params = {"url": target.url, "transport": "streamable-http"}
    else:
        params = StdioServerParameters(**target.process)
    adapter = await asyncio.to_thread(MCPServerAdapter, params, connect_timeout=30)

    async def list_tools():
        return [tool.name for tool in adapter.tools]

    async def call_tool(name, arguments):
        tool = next(tool for tool in adapter.tools if tool.name == name)
        return text_of(await asyncio.to_thread(tool.run, **arguments)), RESULT

    try:
        yield Client(list_tools, call_tool)
    finally:
        await asyncio.to_thread(adapter.stop)


drive(connect)
