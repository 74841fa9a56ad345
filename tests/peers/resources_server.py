"""A server on the official Python SDK, of the major version of its environment, over standard streams.
It has the resources and templates of its argument, and says in each read which of them it is.

    resources_server.py '{"resources": ["file:///a"], "templates": ["file:///{name}"]}'
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

try:
    from mcp.server.fastmcp import FastMCP as Server
except ImportError:
    from mcp.server.mcpserver import MCPServer as Server

server = Server("resources")


def tell(element: str) -> Callable[..., str]:
    """A function that tells the element, with the parameters that the template's variables ask for."""
    parameters = ", ".join(f"{name}: str" for name in re.findall(r"{\+?(\w+)}", element))
    scope: dict[str, Callable[..., str]] = {}
    exec(f"def read({parameters}) -> str:\n    return {element!r}", scope)
    return scope["read"]


said = json.loads(sys.argv[1])
for element in said["resources"] + said["templates"]:
    server.resource(element)(tell(element))
server.run("stdio")
