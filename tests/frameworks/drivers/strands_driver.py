"""strands: `MCPClient`, which runs its connection on a thread of its own."""

import asyncio
from contextlib import asynccontextmanager

from mcp import StdioServerParameters, stdio_client
from protocol import ERROR_RESULT, RESULT, Client, drive, text_of
from strands.tools.mcp import MCPClient


@asynccontextmanager
async def connect(target):
    if target.url:
        client = MCPClient(url=target.url)
    else:
        server = StdioServerParameters(**target.process)
        client = MCPClient(lambda: stdio_client(server))
    await asyncio.to_thread(client.start)

    async def list_tools():
        names, page = [], None
        while True:
            tools = await asyncio.to_thread(client.list_tools_sync, page)
            names += [tool.tool_name for tool in tools]
            page = tools.pagination_token
            if page is None:
                return names

    async def call_tool(name, arguments):
        result = await client.call_tool_async("1", name, arguments)
        return text_of(result["content"]), ERROR_RESULT if result["status"] == "error" else RESULT

    try:
        yield Client(list_tools, call_tool)
    finally:
        await asyncio.to_thread(client.stop, None, None, None)


drive(connect)
