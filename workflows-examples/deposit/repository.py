"""A small repository with the REST interface of DSpace 7, as far as a deposit needs it, and with faults that can be switched on.

    python repository.py FOLDER [--host HOST] [--port PORT]

Everything that it knows is in FOLDER, so it may be killed at any time and started again: ``login.json`` says who may sign in, ``items/`` has a
file for each item, ``bitstreams/`` what was uploaded. Its address goes to ``url``. ``/admin`` is for the reviewer and for the faults.
"""

from __future__ import annotations

import argparse
import json
import secrets
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from xml.sax.saxutils import escape

import uvicorn
from fastapi import Body, FastAPI, File, Form, Header, Query, Request, Response, UploadFile
from fastapi.responses import FileResponse, JSONResponse

STATES = {
    "draft": ("http://dspace.org/state/inprogress", "The item is a draft of its submitter."),
    "review": ("http://dspace.org/state/inreview", "The item is in the reviewers' workflow."),
    "archived": ("http://dspace.org/state/archived", "The item has been archived."),
    "withdrawn": ("http://dspace.org/state/withdrawn", "The item was rejected by a reviewer."),
}
STEPS = ("login", "drafts", "search", "create", "metadata", "workflow", "package", "status")
PERSON = str(uuid.uuid5(uuid.NAMESPACE_URL, "depositor"))
"""Who deposits: the only person that the repository knows."""
Token = Annotated[str | None, Header(alias="Authorization")]
"""Who has signed in."""


class Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Repository:
    """The items on the disk, and the faults that are switched on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.items, self.bitstreams = folder / "items", folder / "bitstreams"
        for made in (self.items, self.bitstreams):
            made.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()
        self.tokens: set[str] = set()
        self.faults: dict[str, dict[str, Any]] = {}
        self.asked: dict[str, int] = dict.fromkeys(STEPS, 0)
        self.held, self.let_go = threading.Event(), threading.Event()
        """An answer is being held back; and it may go."""

    def read(self, item: int) -> dict[str, Any]:
        try:
            return json.loads((self.items / f"{item}.json").read_bytes())  # type: ignore[no-any-return]
        except FileNotFoundError:
            raise Refusal(404, f"Item {item} does not exist.") from None

    def all(self) -> list[dict[str, Any]]:
        return [
            self.read(int(file.stem)) for file in sorted(self.items.glob("*.json"), key=lambda file: int(file.stem))
        ]

    def write(self, item: dict[str, Any]) -> None:
        part = self.items / f".{item['id']}.part"
        part.write_text(json.dumps(item, indent=1), "utf-8")
        part.rename(self.items / f"{item['id']}.json")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step of the interface: ``refuse`` keeps it from being done, ``hold`` keeps who asks from hearing that it was done."""
        with self.lock:
            self.asked[name] += 1
        fault = self.faults.get(name, {})
        if "refuse" in fault:
            raise Refusal(fault["refuse"], fault.get("message", "This fault is switched on."))
        yield
        if fault.get("hold"):
            self.held.set()
            self.let_go.wait()

    def admit(self, authorization: str | None) -> None:
        if authorization not in self.tokens:
            raise Refusal(401, "Authentication is required.")


def interface(repository: Repository) -> FastAPI:
    """The HTTP interface."""
    app = FastAPI(title="A repository like DSpace", docs_url=None, redoc_url=None)

    @app.exception_handler(Refusal)
    def refuse(request: Request, refusal: Refusal) -> JSONResponse:
        said = {
            "timestamp": datetime.now(UTC).isoformat(),
            "status": refusal.status,
            "message": str(refusal),
            "path": request.url.path,
        }
        return JSONResponse(said, refusal.status)

    _add_sign_in(app, repository)
    _add_search(app, repository)
    _add_submission(app, repository)
    _add_items(app, repository)
    _add_administration(app, repository)
    return app


def _told(item: dict[str, Any], request: Request) -> dict[str, Any]:
    """An item as the interface shows it."""
    kind = {"draft": "workspaceitem", "review": "workflowitem"}.get(item["state"], "item")
    api = str(request.base_url) + "server/api"
    links = {
        "self": f"{request.base_url}server/handle/{item['id']}",
        "package": f"{api}/core/bitstreams/{item['bitstream']}/content",
        "status": f"{api}/statements/{item['id']}.atom",
    }
    return {
        "id": item["id"],
        "type": kind,
        "metadata": item["metadata"],
        "sections": {
            "collection": item["collection"],
            "upload": {"files": [{"uuid": item["bitstream"], "metadata": {"dc.title": [{"value": item["file"]}]}}]},
        },
        "_links": {name: {"href": href} for name, href in links.items()},
    }


def _statement(item: dict[str, Any], fault: dict[str, Any], base_url: str) -> str:
    """The status document (Atom) of an item. ``fault``: the state that it shows instead of its own."""
    term, text = STATES[item["state"]]
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"  <id>urn:item:{item['id']}</id>\n  <title>{escape(str(item['file']))}</title>\n"
        f"  <updated>{datetime.now(UTC).isoformat()}</updated>\n"
        f'  <category scheme="http://purl.org/net/sword/terms/state" term="{fault.get("state") or term}" label="State">'
        f"{escape(item.get('reason') or text)}</category>\n"
        f'  <link rel="alternate" href="{base_url}server/handle/{item["id"]}"/>\n</feed>\n'
    )


def _add_sign_in(app: FastAPI, repository: Repository) -> None:
    @app.get("/server/api/security/csrf", status_code=204)
    def csrf(response: Response) -> None:
        response.headers["DSPACE-XSRF-TOKEN"] = secrets.token_hex(8)

    @app.post("/server/api/authn/login")
    def login(response: Response, user: Annotated[str, Form()], password: Annotated[str, Form()]) -> None:
        with repository.step("login"):
            known = json.loads((repository.folder / "login.json").read_bytes())
            if {"user": user, "password": password} != known:
                raise Refusal(401, f"Authentication failed for user {user}.")
            token = f"Bearer {secrets.token_hex(16)}"
            repository.tokens.add(token)
            response.headers["Authorization"] = token

    @app.get("/server/api/authn/status")
    def status(request: Request, authorization: Token = None) -> dict[str, Any]:
        repository.admit(authorization)
        return {
            "okay": True,
            "authenticated": True,
            "_links": {"eperson": {"href": f"{request.base_url}server/api/eperson/epersons/{PERSON}"}},
        }


def _add_search(app: FastAPI, repository: Repository) -> None:
    @app.get("/server/api/submission/workspaceitems/search/findBySubmitter")
    def drafts(
        request: Request,
        uuid: str,
        page: Annotated[int, Query(ge=0)] = 0,
        size: Annotated[int, Query(ge=1, le=100)] = 20,
        authorization: Token = None,
    ) -> dict[str, Any]:
        repository.admit(authorization)
        with repository.step("drafts"):
            found = [item for item in repository.all() if item["state"] == "draft" and uuid == PERSON]
            shown = [_told(item, request) for item in found[page * size : (page + 1) * size]]
            pages = {"number": page, "size": size, "totalPages": -(-len(found) // size), "totalElements": len(found)}
            return {"_embedded": {"workspaceitems": shown}, "page": pages}

    @app.get("/server/api/discover/search/objects")
    def search(request: Request, query: str, scope: str = "", authorization: Token = None) -> dict[str, Any]:
        repository.admit(authorization)
        with repository.step("search"):
            field, _, value = query.partition(":")
            found = [
                item
                for item in repository.all()
                if value.strip('"') in item["metadata"].get(field, []) and scope in ("", item["collection"])
            ]
            objects = [{"_embedded": {"indexableObject": _told(item, request)}} for item in found]
            return {"_embedded": {"searchResult": {"_embedded": {"objects": objects}}}}


def _add_submission(app: FastAPI, repository: Repository) -> None:
    """The way of an item: a draft, its metadata, and the workflow."""

    @app.post("/server/api/submission/workspaceitems", status_code=201)
    def create(
        request: Request, owningCollection: str, file: Annotated[UploadFile, File()], authorization: Token = None
    ) -> dict[str, Any]:
        repository.admit(authorization)
        with repository.step("create"):
            bitstream = str(uuid.uuid4())
            with (repository.bitstreams / bitstream).open("wb") as stored:
                while piece := file.file.read(1 << 20):
                    stored.write(piece)
            with repository.lock:
                item = {
                    "id": max((known["id"] for known in repository.all()), default=0) + 1,
                    "state": "draft",
                    "collection": owningCollection,
                    "bitstream": bitstream,
                    "file": file.filename,
                    "metadata": {},
                }
                repository.write(item)
            return {"_embedded": {"workspaceitems": [_told(item, request)]}}

    @app.patch("/server/api/submission/workspaceitems/{id}")
    def describe(
        request: Request, id: int, patch: Annotated[list[dict[str, Any]], Body()], authorization: Token = None
    ) -> dict[str, Any]:
        repository.admit(authorization)
        with repository.step("metadata"), repository.lock:
            item = repository.read(id)
            for change in patch:
                section, _, field = change["path"].removeprefix("/sections/").partition("/")
                if section == "traditionalpageone":
                    item["metadata"][field] = [value["value"] for value in change["value"]]
            repository.write(item)
            return _told(item, request)

    @app.delete("/server/api/submission/workspaceitems/{id}", status_code=204)
    def discard(id: int, authorization: Token = None) -> None:
        repository.admit(authorization)
        with repository.lock:
            if repository.read(id)["state"] != "draft":
                raise Refusal(422, "Only a draft can be removed.")
            (repository.items / f"{id}.json").unlink()

    @app.post("/server/api/workflow/workflowitems", status_code=201)
    def deposit(
        request: Request, draft: Annotated[bytes, Body(media_type="text/uri-list")], authorization: Token = None
    ) -> dict[str, Any]:
        repository.admit(authorization)
        with repository.step("workflow"):
            with repository.lock:
                item = repository.read(int(draft.decode().rpartition("/")[2]))
                if item["state"] != "draft":
                    raise Refusal(422, "The item is in the workflow already.")
                if not item["metadata"].get("dc.title"):
                    raise Refusal(422, "dc.title is required.")
                # Collections whose name begins with "open" have no reviewers.
                item["state"] = "archived" if item["collection"].startswith("open") else "review"
                repository.write(item)
            return _told(item, request)


def _add_items(app: FastAPI, repository: Repository) -> None:
    """The package, the status and the page of an item."""

    @app.get("/server/api/core/bitstreams/{bitstream}/content")
    def content(bitstream: uuid.UUID, authorization: Token = None) -> Response:
        repository.admit(authorization)
        with repository.step("package"):
            file = repository.bitstreams / str(bitstream)
            if repository.faults.get("package", {}).get("damaged"):
                return Response(file.read_bytes()[:-1] + b"?", media_type="application/zip")
            return FileResponse(file, media_type="application/zip")

    @app.get("/server/api/statements/{id}.atom")
    def statement(request: Request, id: int, authorization: Token = None) -> Response:
        repository.admit(authorization)
        with repository.step("status"):
            item, fault = repository.read(id), repository.faults.get("status", {})
            document = fault.get("document") or _statement(item, fault, str(request.base_url))
            return Response(document, media_type="application/atom+xml")

    @app.get("/server/handle/{id}")
    def page(id: int) -> dict[str, Any]:
        return {key: repository.read(id)[key] for key in ("id", "state", "file", "metadata")}


def _add_administration(app: FastAPI, repository: Repository) -> None:
    """For the reviewer, and for tests that switch faults on."""

    @app.get("/admin")
    def overview() -> dict[str, Any]:
        return {"items": repository.all(), "asked": repository.asked, "held": repository.held.is_set()}

    @app.post("/admin/review/{id}")
    def review(
        id: int, decision: Annotated[str, Body(embed=True)], reason: Annotated[str, Body(embed=True)] = ""
    ) -> None:
        with repository.lock:
            item = repository.read(id)
            if item["state"] == "draft" or decision not in ("archived", "withdrawn"):
                raise Refusal(422, f"Item {id} is {item['state']}; a decision is archived or withdrawn.")
            repository.write(item | {"state": decision, "reason": reason})

    @app.post("/admin/faults")
    def switch(faults: Annotated[dict[str, dict[str, Any]], Body()]) -> None:
        """For each step: ``{"refuse": 422, "message": "…"}`` or ``{"hold": true}``; of package ``damaged``, of status ``state`` or ``document``. ``{}``: none."""
        if not faults.keys() <= set(STEPS):
            raise Refusal(422, f"The steps are {', '.join(STEPS)}.")
        repository.faults = faults
        repository.let_go.set()
        repository.held.clear()
        repository.let_go.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    server = uvicorn.Server(
        uvicorn.Config(
            interface(Repository(options.folder)),
            host=options.host,
            port=options.port,
            log_level="warning",
            timeout_graceful_shutdown=1,
        )
    )
    begin = server.startup

    async def startup(sockets: Any = None) -> None:
        await begin(sockets)
        port = server.servers[0].sockets[0].getsockname()[1]
        part = options.folder / ".url"
        part.write_text(f"http://{options.host}:{port}")
        part.rename(options.folder / "url")

    server.startup = startup  # type: ignore[method-assign]
    server.run()


if __name__ == "__main__":
    main()
