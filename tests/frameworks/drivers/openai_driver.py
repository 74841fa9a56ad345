"""openai-agents: `MCPServerStreamableHttp` and `MCPServerStdio`."""

from contextlib import asynccontextmanager

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from protocol import Client, drive, kind_of, text_of

# The default is 5 s, which a tool may well take.
TIMEOUT = {"client_session_timeout_seconds": 30}


@asynccontextmanager
async def connect(target):
    if target.url:
        server = MCPServerStreamableHttp(params={"url": target.url}, **TIMEOUT)
    else:
        server = MCPServerStdio(params=target.process, **TIMEOUT)
    async with server:

        async def list_tools():
            return [tool.name for tool in await server.list_tools()]

        async def call_tool(name, arguments):
            result = await server.call_tool(name, arguments)
            return text_of(result.content), kind_of(result)

        yield Client(list_tools, call_tool)


drive(connect)
