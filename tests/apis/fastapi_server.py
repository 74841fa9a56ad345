"""A shop on FastAPI, whose own document describes it. Every operation answers what FastAPI parsed.

Prints {"port": N} once it listens on 127.0.0.1.
"""

from typing import Annotated

from fastapi import Body, Cookie, Depends, FastAPI, File, Form, Header, Query, Response, UploadFile
from fastapi.security import APIKeyHeader, APIKeyQuery, HTTPBasic, HTTPBasicCredentials, HTTPBearer
from pydantic import BaseModel

from serving import serve_on_loopback

app = FastAPI(title="Shop", description="Sells things.")


class Item(BaseModel):
    name: str
    price: float = 1.5
    tags: list[str] = []
    parent: "Item | None" = None


class Owner(BaseModel):
    email: str
    note: str | None = "unset"


class Page(BaseModel):
    limit: int = 10
    order: list[str] = []


@app.put("/items/{item_id}")
def update_item(
    item_id: int,
    item: Item,
    tag: Annotated[list[str], Query()],
    dry_run: bool = False,
    x_trace: Annotated[str | None, Header()] = None,
    session: Annotated[str | None, Cookie()] = None,
):
    return {
        "item_id": item_id,
        "item": item,
        "tag": tag,
        "dry_run": dry_run,
        "x_trace": x_trace,
        "session": session,
    }


@app.delete("/items/{item_id}", status_code=204)
def delete_item(item_id: int):
    return Response(status_code=204)


@app.get("/items")
def list_items(page: Annotated[Page, Query()]) -> list[int]:
    return [page.limit, len(page.order)]


@app.head("/items")
def count_items(response: Response):
    response.headers["x-count"] = "3"


@app.get("/files/{path:path}")
def read_file(path: str):
    return {"path": path}


@app.post("/sales")
def sell(item: Item, owner: Owner, amount: Annotated[int, Body()]):
    return {"item": item, "owner": owner, "amount": amount}


@app.patch("/owners")
def change_owner(owner: Owner):
    return {"owner": owner, "given": sorted(owner.model_fields_set)}


@app.post("/forms")
def fill_form(name: Annotated[str, Form()], size: Annotated[list[int], Form()], note: Annotated[str | None, Form()] = None):
    return {"name": name, "size": size, "note": note}


def describe(file: UploadFile):
    return {
        "name": file.filename,
        "type": file.content_type,
        "content": file.file.read().decode(),
    }


@app.post("/uploads")
def upload(
    picture: UploadFile,
    more: list[UploadFile],
    caption: Annotated[str, Form()],
    raw: Annotated[bytes | None, File()] = None,
    cover: UploadFile | None = None,
):
    return {
        "picture": describe(picture),
        "more": [describe(file) for file in more],
        "caption": caption,
        "raw": raw,
        "cover": cover and describe(cover),
    }


@app.post("/text")
def write_text(text: Annotated[str, Body(media_type="text/plain")]):
    return {"text": text}


@app.post("/bytes")
def write_bytes(content: Annotated[bytes, Body(media_type="application/octet-stream")]):
    return {"size": len(content), "first": content[0]}


@app.get("/picture")
def show_picture():
    return Response(b"\x89PNG", media_type="image/png")


@app.get("/secrets/header")
def see_header(key: Annotated[str, Depends(APIKeyHeader(name="X-Key", scheme_name="inHeader"))]):
    return {"key": key}


@app.get("/secrets/query")
def see_query(key: Annotated[str, Depends(APIKeyQuery(name="key", scheme_name="inQuery"))]):
    return {"key": key}


@app.get("/secrets/bearer")
def see_bearer(token: Annotated[object, Depends(HTTPBearer(scheme_name="bearer"))]):
    return {"scheme": token.scheme}


@app.get("/secrets/basic")
def see_basic(login: Annotated[HTTPBasicCredentials, Depends(HTTPBasic(scheme_name="basic"))]):
    return {"username": login.username}


serve_on_loopback(app)
