"""The services beside an ingest, small and real: content, minting, storage, inventory, callback, mail. Each has faults that can be switched on.

    python services.py FOLDER --home HOME     runs all of them beside an arkqueue, and writes their addresses to FOLDER/services.json

Minting and inventory keep what they know in PostgreSQL, storage and the others in FOLDER. All of it survives a restart and a kill. A fault is switched
on with ``curl -X PUT URL/faults -d '{"fail": 3}'``, where URL is a service's own, and off with ``{}``:

    fail    so many requests are answered 503; -1: all
    lose    so many requests are done, and their answers are lost
    slow    seconds that each answer takes
    size    (content) HEAD does not tell the size
    worker  (storage) there is none for a request
    record  (inventory) so many records fail
    wait    (inventory) records wait
    full    (storage) there is no room
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mimetypes
import secrets
import shutil
import signal
import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from aiosmtpd.controller import Controller
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

ADDRESS = "127.0.0.1"
PATIENCE = 30.0
IDLE = 0.1
"""Seconds between two looks of inventory for new records."""
PIECE = 1 << 20
TABLES = """
create schema if not exists merritt;
create table if not exists merritt.identifier (
    ark text primary key, owner text not null, job text unique, about jsonb not null, minted boolean not null);
create table if not exists merritt.local_id (
    owner text, local_id text, ark text not null references merritt.identifier, primary key (owner, local_id));
create table if not exists merritt.record (
    id bigint generated always as identity primary key, job text not null unique, body jsonb not null,
    status text not null default 'pending', message text not null default '', last_modified timestamptz not null default now());
create table if not exists merritt.object (
    ark text primary key, owner text not null, collection text not null, local_id text, version int not null);
create table if not exists merritt.file (
    ark text references merritt.object, version int, name text, size bigint not null, digest text not null,
    primary key (ark, version, name));
"""
Answer = tuple[int, Any]


@dataclass(frozen=True)
class Asked:
    """A request."""

    path: str
    query: dict[str, str]
    body: bytes
    media_type: str


class Refused(Exception):
    """The answer to a request that cannot be done: an HTTP status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Service(ThreadingHTTPServer):
    """A service at an address of its own; what it does stands in ``get``, ``post`` and ``put``."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.faults: dict[str, Any] = {}
        self._lock = threading.Lock()
        super().__init__((ADDRESS, port), _Request)

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}"

    def get(self, asked: Asked) -> Answer:
        raise Refused(404, f"{asked.path}: is not here")

    def post(self, asked: Asked) -> Answer:
        raise Refused(404, f"{asked.path}: is not here")

    def put(self, asked: Asked) -> Answer:
        raise Refused(404, f"{asked.path}: is not here")

    def takes(self, fault: str) -> bool:
        """Whether a fault is on; one that is counted is used up by asking."""
        with self._lock:
            left = self.faults.get(fault, 0)
            if left and left is not True and left > 0:
                self.faults[fault] = left - 1
            return bool(left)


class _Request(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.0"
    timeout = PATIENCE

    def do_GET(self) -> None:
        self._answer(self.server.get)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(self.server.post)

    def do_PUT(self) -> None:
        if self.path == "/faults":
            self.server.faults = json.loads(self._body())
            self._send(200, self.server.faults)
            return
        self._answer(self.server.put)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _asked(self) -> Asked:
        path, _, query = self.path.partition("?")
        words = dict(urllib.parse.parse_qsl(query))
        return Asked(urllib.parse.unquote(path), words, self._body(), self.headers.get_content_type())

    def _answer(self, do: Callable[[Asked], Answer]) -> None:
        time.sleep(self.server.faults.get("slow", 0))
        asked = self._asked()
        if self.server.takes("fail"):
            self._send(503, {"message": "is out of order"})
            return
        try:
            status, said = do(asked)
        except Refused as refused:
            status, said = refused.status, {"message": str(refused)}
        except (ValueError, KeyError) as error:
            status, said = 400, {"message": f"cannot be understood: {error!r}"}
        except Exception as error:
            status, said = 500, {"message": repr(error)}
        if self.command != "HEAD" and self.server.takes("lose"):
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        with suppress(OSError):
            self._send(status, said)

    def _send(self, status: int, said: Any) -> None:
        is_file = isinstance(said, Path)
        data = b"" if is_file else json.dumps(said).encode()
        size = said.stat().st_size if is_file else len(data)
        self.send_response(status)
        self.send_header(
            "Content-Type",
            (mimetypes.guess_type(said.name)[0] or "application/octet-stream") if is_file else "application/json",
        )
        if not (self.command == "HEAD" and self.server.faults.get("size")):
            self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command == "HEAD":
            return
        if is_file:
            with said.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, PIECE)
        else:
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Content(Service):
    """Files over HTTP: what depositors have on their own servers, and what is delivered to readers."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        super().__init__(name, port)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, asked: Asked) -> Answer:
        file = (self.folder / asked.path.lstrip("/")).resolve()
        if not file.is_relative_to(self.folder.resolve()) or not file.is_file():
            raise Refused(404, f"{asked.path}: is not here")
        return 200, file


class Minting(Service):
    """Mints ARKs, in the manner of EZID, and knows the local ids of owners. It mints one ARK for the name of a job, however often it is asked."""

    ALPHABET = "bcdfghjkmnpqrstvwxz0123456789"

    def __init__(self, name: str, port: int, pool: ConnectionPool[Any]) -> None:
        super().__init__(name, port)
        self._pool = pool

    def get(self, asked: Asked) -> Answer:
        with self._pool.connection() as connection:
            if asked.path == "/lookup":
                found = connection.execute(
                    "select ark from merritt.local_id where owner = %s and local_id = %s",
                    [asked.query["owner"], asked.query["local_id"]],
                ).fetchone()
            else:
                found = connection.execute(
                    "select * from merritt.identifier where ark = %s", [asked.path.removeprefix("/id/")]
                ).fetchone()
        if found is None:
            raise Refused(404, "there is no such identifier")
        return 200, found

    def post(self, asked: Asked) -> Answer:
        about = json.loads(asked.body)
        shoulder = asked.path.removeprefix("/shoulder/")
        with self._pool.connection() as connection:
            ark = shoulder + "".join(secrets.choice(self.ALPHABET) for _ in range(8))
            connection.execute(
                "insert into merritt.identifier values (%s, %s, %s, %s, true) on conflict (job) do nothing",
                [ark, about["owner"], about["job"], json.dumps(about)],
            )
            found = connection.execute("select ark from merritt.identifier where job = %s", [about["job"]]).fetchone()
            self._know(connection, found["ark"], about)
        return 201, {"status": "success", "ark": found["ark"]}

    def put(self, asked: Asked) -> Answer:
        about, ark = json.loads(asked.body), asked.path.removeprefix("/id/")
        with self._pool.connection() as connection:
            connection.execute(
                "insert into merritt.identifier values (%s, %s, null, %s, false) on conflict (ark) do nothing",
                [ark, about["owner"], json.dumps(about)],
            )
            self._know(connection, ark, about)
        return 200, {"status": "success", "ark": ark}

    def _know(self, connection: Any, ark: str, about: dict[str, Any]) -> None:
        """Keep the local id of an ARK. Two jobs may ask for the same one at once: the second one is told that it is taken."""
        if not about.get("local_id"):
            return
        connection.execute(
            "insert into merritt.local_id values (%s, %s, %s) on conflict do nothing",
            [about["owner"], about["local_id"], ark],
        )
        known = connection.execute(
            "select ark from merritt.local_id where owner = %s and local_id = %s", [about["owner"], about["local_id"]]
        ).fetchone()
        if known["ark"] != ark:
            raise Refused(409, f"local id {about['local_id']}: belongs to {known['ark']}")


class Storage(Service):
    """Keeps versions of objects: FOLDER/NODE/ARK/VERSION/{producer,system}. One version for a job, however often it is handed in with the same files."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        super().__init__(name, port)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._objects: dict[str, threading.Lock] = {}

    def get(self, asked: Asked) -> Answer:
        if asked.path == "/worker":
            if self.takes("worker"):
                raise Refused(404, "every worker is busy")
            return 200, {"url": self.url}
        words = asked.path.strip("/").split("/", 2)
        if words[0] == "object":
            return 200, self._object(*words[1:])
        if words[0] == "file":
            node, rest = words[1:]
            file = (self.folder / node / rest).resolve()
            if not file.is_relative_to(self.folder.resolve()) or not file.is_file():
                raise Refused(404, f"{asked.path}: is not here")
            return 200, file
        raise Refused(404, f"{asked.path}: is not here")

    def _object(self, node: str, ark: str) -> Any:
        newest = self._newest(self._place(node, ark))
        if newest is None:
            raise Refused(404, f"{ark}: is not here")
        files = json.loads((newest / "files.json").read_text("utf-8"))
        base = f"{self.url}/file/{node}/{newest.parent.name}"
        return {
            "ark": ark,
            "version": int(newest.name),
            "cloud-content-byte": sum(file["size"] for file in files),
            "files": [file | {"url": f"{base}/{file['version']}/{urllib.parse.quote(file['name'])}"} for file in files],
        }

    def post(self, asked: Asked) -> Answer:
        word, node, ark = asked.path.strip("/").split("/", 2)
        if word != "add" or not node.isdecimal() or not ark.startswith("ark:/"):
            raise Refused(404, f"{asked.path}: is not here")
        if self.takes("full"):
            raise Refused(507, f"node {node}: has no room")
        request = json.loads(asked.body)
        place = self._place(node, ark)
        with self._lock:
            lock = self._objects.setdefault(str(place), threading.Lock())
        with lock:
            version = self._stored(place, request) or self._store(place, request)
        files = json.loads((version / "files.json").read_text("utf-8"))
        return 201, {
            "status": "stored",
            "version": int(version.name),
            "manifest_url": f"{self.url}/file/{node}/{place.name}/{version.name}/manifest.checkm",
            "cloud-content-byte": sum(file["size"] for file in files),
        }

    def _place(self, node: str, ark: str) -> Path:
        return self.folder / node / ark.replace(":", "+").replace("/", "=")

    def _newest(self, place: Path) -> Path | None:
        versions = [path for path in place.glob("*") if path.name.isdecimal()]
        return max(versions, key=lambda path: int(path.name), default=None)

    def _stored(self, place: Path, request: dict[str, Any]) -> Path | None:
        """The version that this job has already, of the same files."""
        for path in place.glob("*/job"):
            version = path.parent
            if version.name.isdecimal() and path.read_text("utf-8") == request["job"]:
                manifest = (version / "manifest.checkm").read_text("utf-8")
                if _content(manifest) == _content(request["manifest"]):
                    return version
        return None

    def _store(self, place: Path, request: dict[str, Any]) -> Path:
        before = self._newest(place)
        version = place / str(int(before.name) + 1 if before else 1)
        draft = place / f"{version.name}.part"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        files = []
        for line in request["manifest"].splitlines():
            if line.startswith("#"):
                continue
            url, kind, value, size, name = (word.strip() for word in line.split("|"))
            self._copy(url, draft / name, kind, value, int(size))
            files.append(
                {
                    "name": name,
                    "size": int(size),
                    "digest_type": kind,
                    "digest_value": value,
                    "version": int(version.name),
                }
            )
        if request["submission_mode"] == "update" and before:
            # An update adds files and replaces those of the same name; the others are those of the version before.
            own = {file["name"] for file in files}
            files += [f for f in json.loads((before / "files.json").read_text("utf-8")) if f["name"] not in own]
        (draft / "files.json").write_text(json.dumps(files), "utf-8")
        (draft / "manifest.checkm").write_text(request["manifest"], "utf-8")
        (draft / "job").write_text(request["job"], "utf-8")
        draft.rename(version)
        return version

    def _copy(self, url: str, target: Path, kind: str, value: str, size: int) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        source = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
        hashed, copied = hashlib.new(kind.replace("-", "")), 0
        with source.open("rb") as file, target.open("wb") as out:
            while piece := file.read(PIECE):
                hashed.update(piece)
                copied += len(piece)
                out.write(piece)
        if hashed.hexdigest() != value or copied != size:
            raise Refused(409, f"{url}: is not what the manifest says")


def _content(manifest: str) -> set[str]:
    """What a storage manifest names, wherever the files are."""
    return {line.partition("|")[2] for line in manifest.splitlines() if not line.startswith("#")}


class Inventory(Service):
    """Records what storage has, in PostgreSQL. Records are handed over, and worked on one after the other; an object is locked meanwhile."""

    def __init__(self, name: str, port: int, pool: ConnectionPool[Any]) -> None:
        super().__init__(name, port)
        self._pool = pool
        self._come, self._is_over = threading.Event(), threading.Event()
        self._worker = threading.Thread(target=self._work, name="inventory")
        self._worker.start()

    def get(self, asked: Asked) -> Answer:
        word, _, name = asked.path.strip("/").partition("/")
        with self._pool.connection() as connection:
            if word == "records":
                found = connection.execute(
                    "select id, status, message, last_modified from merritt.record where id = %s", [int(name)]
                ).fetchone()
            elif word == "objects":
                found = connection.execute("select * from merritt.object where ark = %s", [name]).fetchone()
            else:
                raise Refused(404, f"{asked.path}: is not here")
        if found is None:
            raise Refused(404, f"{asked.path}: is not here")
        return 200, {name: str(value) if name == "last_modified" else value for name, value in found.items()}

    def post(self, asked: Asked) -> Answer:
        record = json.loads(asked.body)
        with self._pool.connection() as connection:
            kept = connection.execute(
                "insert into merritt.record (job, body) values (%s, %s) on conflict (job) do update"
                " set status = case when record.status = 'failed' or record.body <> excluded.body then 'pending' else record.status end,"
                " body = excluded.body returning id, status",
                [record["job"], json.dumps(record)],
            ).fetchone()
        self._come.set()
        return 202, kept

    def server_close(self) -> None:
        self._is_over.set()
        self._come.set()
        self._worker.join()
        super().server_close()

    def _work(self) -> None:
        while not self._is_over.is_set():
            self._come.wait(IDLE)
            self._come.clear()
            # A database that is away comes back; what is pending is still there then.
            with suppress(Exception):
                while not self.faults.get("wait") and not self._is_over.is_set() and self._record_one():
                    pass

    def _record_one(self) -> bool:
        with self._pool.connection() as connection:
            record = connection.execute(
                "select id, body from merritt.record where status = 'pending' order by id limit 1 for update skip locked"
            ).fetchone()
            if record is None:
                return False
            body = record["body"]
            status, message = "recorded", ""
            try:
                if self.takes("record"):
                    raise ValueError("the database refused the record")
                with connection.transaction():
                    connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [body["ark"]])
                    self._keep(connection, body)
            except Exception as error:
                status, message = "failed", f"{body['ark']}: {error}"[:1000]
            connection.execute(
                "update merritt.record set status = %s, message = %s, last_modified = now() where id = %s",
                [status, message, record["id"]],
            )
            return True

    def _keep(self, connection: Any, body: dict[str, Any]) -> None:
        with urllib.request.urlopen(body["manifest_url"], timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        connection.execute(
            "insert into merritt.object values (%(ark)s, %(owner)s, %(collection)s, %(local_id)s, %(version)s) on conflict (ark) do update"
            " set version = greatest(object.version, excluded.version), local_id = coalesce(object.local_id, excluded.local_id)",
            body,
        )
        for line in lines:
            if not line.startswith("#"):
                _, kind, value, size, name = (word.strip() for word in line.split("|"))
                connection.execute(
                    "insert into merritt.file values (%s, %s, %s, %s, %s) on conflict do nothing",
                    [body["ark"], body["version"], name, int(size), f"{kind}:{value}"],
                )


class Callback(Service):
    """Keeps what it is told, a file for each call: FOLDER/N.TYPE."""

    ENDINGS: ClassVar = {"application/json": "json", "application/xml": "xml", "text/turtle": "ttl"}

    def __init__(self, name: str, port: int, folder: Path) -> None:
        super().__init__(name, port)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._count = len(list(folder.iterdir()))

    def post(self, asked: Asked) -> Answer:
        with self._lock:
            self._count += 1
            name = f"{self._count:05}.{self.ENDINGS[asked.media_type]}"
        (self.folder / name).write_bytes(asked.body)
        return 200, {"message": f"{asked.path}: thank you"}


class Mail:
    """A mail server that keeps each mail in a file: FOLDER/N.eml. Its faults are switched on at ``url``, as those of the others."""

    def __init__(self, port: int, faults: int, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._count = len(list(folder.iterdir()))
        self.switch = Service("mail", faults)
        self._controller = Controller(self, hostname=ADDRESS, port=port or _free_port())
        self._controller.start()

    @property
    def address(self) -> str:
        return f"{ADDRESS}:{self._controller.server.sockets[0].getsockname()[1]}"

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:
        if self.switch.takes("fail"):
            return "451 try again later"
        self._count += 1
        draft = self.folder / f"{self._count:05}.part"
        draft.write_bytes(envelope.content)
        draft.rename(draft.with_suffix(".eml"))
        return "250 OK"

    def close(self) -> None:
        self._controller.stop()


def _embedded(home: Path) -> str:
    from arkqueue.db.embedded.server import Embedded

    return Embedded(home).uri


def _free_port() -> int:
    with socket.create_server((ADDRESS, 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="The services beside an ingest.")
    parser.add_argument("folder", type=Path)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--database", metavar="URI", help="a PostgreSQL for minting and inventory")
    where.add_argument(
        "--home", type=Path, help="the home folder of an arkqueue that runs, whose embedded PostgreSQL they use"
    )
    given = parser.parse_args()
    database = given.database or _embedded(given.home)
    folder: Path = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    addresses = folder / "services.json"
    ports = (
        {name: int(url.rpartition(":")[2]) for name, url in json.loads(addresses.read_text()).items()}
        if addresses.exists()
        else {}
    )
    over = threading.Event()
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: over.set())
    with ConnectionPool(database, min_size=1, max_size=6, kwargs={"row_factory": dict_row}, open=True) as pool:
        with pool.connection() as connection:
            connection.execute(TABLES)
        mail = Mail(ports.get("mail", 0), ports.get("mail_faults", 0), folder / "mail")
        services: list[Service] = [
            Content("content", ports.get("content", 0), folder / "content"),
            Minting("minting", ports.get("minting", 0), pool),
            Storage("storage", ports.get("storage", 0), folder / "storage"),
            Inventory("inventory", ports.get("inventory", 0), pool),
            Callback("callback", ports.get("callback", 0), folder / "callback"),
            Content("delivery", ports.get("delivery", 0), folder / "delivery"),
        ]
        for service in [*services, mail.switch]:
            threading.Thread(target=service.serve_forever, name=service.name, daemon=True).start()
        known = {service.name: service.url for service in services} | {
            "mail": mail.address,
            "mail_faults": mail.switch.url,
        }
        draft = addresses.with_suffix(".new")
        draft.write_text(json.dumps(known, indent=1))
        draft.replace(addresses)
        over.wait()
        for service in [*services, mail.switch]:
            service.shutdown()
            service.server_close()
        mail.close()


if __name__ == "__main__":
    main()
