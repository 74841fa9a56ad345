"""openai-agents: `MCPServerStreamableHttp` and `MCPServerStdio`."""

from contextlib import asynccontextmanager

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from protocol import ERROR_RESULT, RESULT, Client, drive, text_of

# The default is 5 s, which a tool may well take.
TIMEOUT = {"client_session_timeout_seconds": 30}


@asynccontextmanager
async def connect(target):
    if target.url:
        server = MCPServerStreamableHttp(params={"url": target.url}, **TIMEOUT)
    else:
        command, *args = target.command
        server = MCPServerStdio(params={"command": command, "args": args, "env": target.environment}, **TIMEOUT)
    async with server:

        async def list_tools():
            return [tool.name for tool in await server.list_tools()]

        async def call_tool(name, arguments):
            result = await server.call_tool(name, arguments)
            failed = getattr(result, "is_error", None) or getattr(result, "isError", None)
            return text_of(result.content), ERROR_RESULT if failed else RESULT

        yield Client(list_tools, call_tool)


drive(connect)
