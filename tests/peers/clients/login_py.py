"""Logs in at a gateway with no help, with the Python SDK 1.x or 2.x, whichever is installed.

python login_py.py URL STEP...

A step is the name of a tool, `wait:MS`, or `revoke`. Prints one line of JSON for each.
"""

from __future__ import annotations

import html
import json
import re
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import anyio

try:
    import httpx2 as httpx
except ImportError:
    import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

CALLBACK = "http://127.0.0.1:1/callback"


class Memory:
    """What an application keeps of its logins."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self.asked: list[str | None] = []
        self.answer: dict[str, list[str]] = {}

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    async def follow(self, url: str) -> None:
        """The only human in a login: follows redirects until one leads back to the client, and
        agrees on the gateway's own page."""
        parts = urlsplit(url)
        self.issuer = f"{parts.scheme}://{parts.netloc}"
        self.asked.append(parse_qs(urlsplit(url).query).get("scope", [None])[0])
        async with httpx.AsyncClient(follow_redirects=False) as http:
            for _ in range(20):
                if url.startswith(CALLBACK):
                    self.answer = parse_qs(urlsplit(url).query)
                    return
                response = await http.get(url)
                form = re.search(r'<form method="post" action="([^"]+/consent)">', response.text)
                if form:
                    hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', response.text)
                    fields = {name: html.unescape(value) for name, value in hidden} | {"answer": "accept"}
                    response = await http.post(urljoin(url, html.unescape(form[1])), data=fields)
                if "location" not in response.headers:
                    raise RuntimeError(f"{response.status_code} at {url}: {response.text}")
                url = urljoin(url, response.headers["location"])
        raise RuntimeError("no end of redirects")

    async def revoke(self) -> None:
        """Revoke the refresh token, as a user does who signs out elsewhere."""
        assert self.tokens and self.client
        async with httpx.AsyncClient() as http:
            form = {"token": self.tokens.refresh_token, "client_id": self.client.client_id}
            response = await http.post(f"{self.issuer}/token/revocation", data=form)
            response.raise_for_status()

    async def answered(self) -> Any:
        code, state = self.answer["code"][0], self.answer["state"][0]
        if version("mcp").startswith("1."):
            return code, state
        from mcp.client.auth import AuthorizationCodeResult

        return AuthorizationCodeResult(code=code, state=state, iss=self.answer.get("iss", [None])[0])


def show(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


async def main(url: str, steps: list[str]) -> None:
    memory = Memory()
    metadata = {
        "client_name": "a test",
        "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    auth = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata.model_validate(metadata),
        storage=memory,
        redirect_handler=memory.follow,
        callback_handler=memory.answered,
    )
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(auth=auth, follow_redirects=True, timeout=30))
        transport = streamable_http_client(url, http_client=http)
        session: Any
        if version("mcp").startswith("1."):
            streams = await stack.enter_async_context(transport)
            session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
            await session.initialize()
        else:
            from mcp import Client

            session = await stack.enter_async_context(Client(transport, mode="auto"))
        show({"tools": [tool.name for tool in (await session.list_tools()).tools]})
        for step in steps:
            if step.startswith("wait:"):
                await anyio.sleep(int(step[5:]) / 1000)
                continue
            if step == "revoke":
                await memory.revoke()
                continue
            result = await session.call_tool(step, {})
            text = getattr(result.content[0], "text", "")
            is_error = getattr(result, "isError", getattr(result, "is_error", False))
            show({"called": step, "text": text, "isError": is_error})
        show({"asked": memory.asked})


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
