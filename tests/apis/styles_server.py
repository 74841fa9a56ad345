"""Every style of every place, as `styles.yaml` says: openapi-core parses each request by that
document, and what it found is the answer. A request that breaks the document is answered by 400.

Prints {"port": N} once it listens on 127.0.0.1.
"""

import dataclasses
from pathlib import Path

import yaml
from openapi_core import OpenAPI
from openapi_core.contrib.starlette import StarletteOpenAPIRequest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from serving import serve_on_loopback

DOCUMENT = Path(__file__).with_name("styles.yaml")
openapi = OpenAPI.from_file_path(str(DOCUMENT))


async def show_document(request):
    return PlainTextResponse(DOCUMENT.read_text(), media_type="application/yaml")


def as_json(value):
    """What was parsed, with bytes as text."""
    if isinstance(value, bytes):
        return value.decode()
    if dataclasses.is_dataclass(value):
        return as_json(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(key): as_json(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(member) for member in value]
    return value


async def echo(request):
    parsed = StarletteOpenAPIRequest(request, await request.body())
    # For `;color`, openapi-core looks for the variable as RFC 6570 would write it.
    parsed.parameters.path = {
        f"{style}{name}{explode}": value
        for name, value in request.path_params.items()
        for style in ("", ".", ";")
        for explode in ("", "*")
    }
    found = openapi.unmarshal_request(parsed)
    if found.errors:
        causes = [repr(error.__cause__ or error) for error in found.errors]
        return JSONResponse({"errors": causes}, status_code=400)
    places = {place: as_json(dict(getattr(found.parameters, place))) for place in ("path", "query", "header", "cookie")}
    return JSONResponse({place: values for place, values in places.items() if values} | {"body": as_json(found.body)})


paths = yaml.safe_load(DOCUMENT.read_text())["paths"]
routes = [Route(path, echo, methods=["GET", "POST"]) for path in paths]
serve_on_loopback(Starlette(routes=[Route("/openapi.yaml", show_document), *routes]))
