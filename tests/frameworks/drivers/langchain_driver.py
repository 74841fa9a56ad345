"""langchain-mcp-adapters: one session, tools loaded from it."""

from contextlib import asynccontextmanager

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from protocol import RESULT, Client, drive, text_of


@asynccontextmanager
async def connect(target):
    if target.url:
        connection = {"transport": "streamable_http", "url": target.url}
    else:
        connection = {"transport": "stdio", **target.process}
    client = MultiServerMCPClient({"server": connection})
    tools = {}
    async with client.session("server") as session:

        async def list_tools():
            tools.update({tool.name: tool for tool in await load_mcp_tools(session)})
            return list(tools)

        async def call_tool(name, arguments):
            return text_of(await tools[name].ainvoke(arguments)), RESULT

        yield Client(list_tools, call_tool)


drive(connect)
