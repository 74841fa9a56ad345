"""google-adk: `McpToolset`."""

from contextlib import asynccontextmanager
from unittest.mock import MagicMock

from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from google.adk.tools.tool_context import ToolContext
from mcp import StdioServerParameters
from protocol import ERROR_RESULT, RESULT, Client, drive, text_of


@asynccontextmanager
async def connect(target):
    # The default is 5 s, for connecting, and over stdio for each answer too.
    if target.url:
        params = StreamableHTTPConnectionParams(url=target.url, timeout=30)
    else:
        server = StdioServerParameters(**target.process)
        params = StdioConnectionParams(server_params=server, timeout=30)
    toolset = McpToolset(connection_params=params)
    tools = {}

    async def list_tools():
        tools.update({tool.name: tool for tool in await toolset.get_tools()})
        return list(tools)

    async def call_tool(name, arguments):
        context = MagicMock(spec=ToolContext)
        result = await tools[name].run_async(args=arguments, tool_context=context)
        failed = "error" in result or result.get("isError") or result.get("is_error")
        return text_of(result.get("content", result)), ERROR_RESULT if failed else RESULT

    try:
        yield Client(list_tools, call_tool)
    finally:
        await toolset.close()


drive(connect)
