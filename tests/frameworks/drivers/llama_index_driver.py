"""llama-index-tools-mcp: `BasicMCPClient`, which connects anew for each request."""

from contextlib import asynccontextmanager

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from protocol import Client, drive, kind_of, text_of


@asynccontextmanager
async def connect(target):
    if target.url:
        client = BasicMCPClient(target.url, timeout=30)
    else:
        command, *args = target.command
        client = BasicMCPClient(command, args=args, env=target.environment, timeout=30)
    spec = McpToolSpec(client=client)

    async def list_tools():
        return [tool.metadata.name for tool in await spec.to_tool_list_async()]

    async def call_tool(name, arguments):
        result = await client.call_tool(name, arguments)
        return text_of(result.content), kind_of(result)

    yield Client(list_tools, call_tool)


drive(connect)
