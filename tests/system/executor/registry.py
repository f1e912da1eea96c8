"""An image registry on a port of this host, with the parts that an engine needs for a pull. Engines
trust it because it is on the loopback interface.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIGURATION = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """A registry. While ``is_held`` is set, it accepts requests for images but does not answer;
    ``has_held`` is set at the first one.

    ``refusal``: the status of every answer. ``login``: the required user and password, separated by
    a colon.
    """

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._tags: dict[str, str] = {}
        self._let_go = threading.Event()
        self._let_go.set()
        self.has_held = threading.Event()
        self.refusal: int | None = None
        self.login: str | None = None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05], name="registry")
        self._thread.start()
        # An earlier registry may have had the same port in this run, and the engine still has its
        # images.
        self._folder = uuid.uuid4().hex
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.address = f"{self.host}/{self._folder}"

    def put(self, name: str, files: bytes, labels: dict[str, str]) -> str:
        """Publishes ``name`` (with a tag) as an image of these files, a tar archive. Returns the
        digest, by which the image can also be pulled.
        """
        layer = gzip.compress(files, mtime=0)
        diff = f"sha256:{hashlib.sha256(files).hexdigest()}"
        rootfs = {"type": "layers", "diff_ids": [diff]}
        image = {"architecture": "amd64", "os": "linux", "config": {"Labels": labels}, "rootfs": rootfs}
        text = json.dumps(image).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIGURATION, "size": len(text), "digest": self._keep(text)},
            "layers": [{"mediaType": LAYER, "size": len(layer), "digest": self._keep(layer)}],
        }
        digest = self._tags[name] = self._keep(json.dumps(manifest).encode())
        return digest

    def hold(self) -> None:
        self.has_held.clear()
        self._let_go.clear()

    def let_go(self) -> None:
        self._let_go.set()

    def close(self) -> None:
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _keep(self, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self._blobs[digest] = data
        return digest

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path
        # An engine gives up its first request by itself after a while.
        if path != "/v2/" and not self._let_go.is_set():
            self.has_held.set()
            self._let_go.wait()
        name, _, what = (
            path.removeprefix(f"/v2/{self._folder}/").replace("/blobs/", "/manifests/").partition("/manifests/")
        )
        found = b"{}" if path == "/v2/" else self._blobs.get(self._tags.get(f"{name}:{what}", what))
        status = self.refusal or (200 if found is not None else 404)
        given = base64.b64decode(request.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        if self.login not in (None, given):
            status = 401
        fault = b'{"errors": [{"code": "%s", "message": "no"}]}' % (b"UNAUTHORIZED" if status == 401 else b"UNKNOWN")
        body = found if status == 200 and found is not None else fault
        request.send_response(status)
        if status == 401:
            request.send_header("WWW-Authenticate", 'Basic realm="test"')
        request.send_header("Content-Type", MANIFEST if "/manifests/" in path else "application/octet-stream")
        request.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)
