"""An MCP server on FastMCP, of the Python SDK 1.x, with the SDK's own authorization: it takes requests
with a token of an authorization server only.

    guarded_server.py ISSUER

Prints `{"port": N}` before it listens. Its tool `whoami` tells the digest of the token of the call.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import urllib.request

import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.fastmcp import FastMCP

issuer = sys.argv[1]
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
port = listener.getsockname()[1]
url = f"http://127.0.0.1:{port}/mcp"
with urllib.request.urlopen(f"{issuer}/.well-known/openid-configuration") as answer:
    keys = jwt.PyJWKClient(json.load(answer)["jwks_uri"])


class Verifier(TokenVerifier):
    """Verifies the signature, the issuer and the audience."""

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            key = keys.get_signing_key_from_jwt(token)
            claims = jwt.decode(token, key.key, algorithms=["RS256"], issuer=issuer, audience=url)
        except jwt.PyJWTError:
            return None
        scopes = claims["scope"].split()
        return AccessToken(token=token, client_id=claims["client_id"], scopes=scopes, expires_at=claims["exp"])


settings = AuthSettings(
    issuer_url=issuer, resource_server_url=url, required_scopes=["mcp:read"], validate_token_resource=False
)
server = FastMCP("guarded", token_verifier=Verifier(), auth=settings, stateless_http=True)


@server.tool()
def whoami() -> str:
    """Whose token it is"""
    return hashlib.sha256(get_access_token().token.encode()).hexdigest()


print(json.dumps({"port": port}), flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])
