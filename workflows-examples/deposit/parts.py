"""The parts beside arkqueue that the example needs: a repository, an SSH server, credentials, and the files of the archive.

Everything is real and of its own: each part is a process on a free port of this machine, with its files in one folder.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import yaml

HERE = Path(__file__).resolve().parent
PATIENCE = 60.0
"""Seconds until what should have happened long ago is given up."""
WORKFLOW = "_workflows/deposit.yaml"
ARCHIVED, WITHDRAWN = "http://dspace.org/state/archived", "http://dspace.org/state/withdrawn"


class Part:
    """A process that serves on a port of its own. While it is down, nobody else gets the port, and connections are refused."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.host = folder, host
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind((host, 0))
        self.port: int = self._kept.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "log").read_text("utf-8", "replace").strip().splitlines() or ["nothing"]
                self.stop()
                raise RuntimeError(f"{self.command()[0]} does not start: {said[-1]}. See {self.folder}/log")
            time.sleep(0.02)

    @property
    def pid(self) -> int | None:
        """The id of its process, while it runs."""
        return self._process.pid if self._process else None

    def stop(self) -> None:
        """As if its machine were switched off; it can be started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._kept.close()

    def command(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1):
                return True
        except OSError:
            return False


class Repository(Part):
    """The repository of ``repository.py``: its address, its reviewer, its faults."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        super().__init__(folder, host)
        self.login = {"user": "depositor@example.org", "password": os.urandom(12).hex()}
        (folder / "login.json").write_text(json.dumps(self.login))

    def command(self) -> list[str]:
        place = ["--host", self.host, "--port", str(self.port)]
        return [sys.executable, str(HERE / "repository.py"), str(self.folder), *place]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def items(self, name: str | None = None) -> list[dict[str, Any]]:
        """What it has, or the items of one package."""
        found: list[dict[str, Any]] = self.overview()["items"]
        return [item for item in found if name in (None, item["file"])]

    def overview(self) -> dict[str, Any]:
        with urlopen(f"{self.url}/admin", timeout=PATIENCE) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    def review(self, name: str, decision: str, reason: str = "") -> None:
        """What the reviewer decides about the item that came in a package: ``archived`` or ``withdrawn``."""
        (item,) = [item for item in self.items(name) if item["state"] != "draft"]
        self._post(f"review/{item['id']}", {"decision": decision, "reason": reason})

    def faults(self, **faults: dict[str, Any]) -> None:
        """Switch faults on, in place of those that were; ``repository.py`` says which there are."""
        self._post("faults", faults)

    def _post(self, path: str, body: Any) -> None:
        headers = {"Content-Type": "application/json"}
        urlopen(Request(f"{self.url}/admin/{path}", json.dumps(body).encode(), headers), timeout=PATIENCE).close()


class Sshd(Part):
    """OpenSSH's server for SFTP alone, as this user, with a host key and an authorized key of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.inbox = folder / "inbox"
        self.inbox.mkdir(exist_ok=True)
        self.key = folder / "depositor_ed25519"
        for file in (folder / "host_ed25519", self.key):
            if not file.exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)], check=True)
        shutil.copy(f"{self.key}.pub", folder / "authorized_keys")
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_ed25519\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "StrictModes no\nPermitRootLogin prohibit-password\nForceCommand internal-sftp\nSubsystem sftp internal-sftp\n"
            "MaxStartups 100\n"
        )

    @staticmethod
    def program() -> str | None:
        return shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")

    def command(self) -> list[str]:
        if os.getuid() == 0:
            # Debian's own start of the service makes it; a server of root does without it nowhere.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        return [str(self.program()), "-D", "-e", "-f", str(self.folder / "sshd_config")]

    @property
    def address(self) -> str:
        return f"sftp://{getpass.getuser()}@127.0.0.1:{self.port}{self.inbox}"

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host_ed25519.pub").read_text().split()[:2])


def folder_target(folder: Path, **more: Any) -> dict[str, Any]:
    return {"assembler": "bagit", "transport": "folder", "address": str(folder), **more}


def sftp_target(sshd: Sshd, **more: Any) -> dict[str, Any]:
    return {
        "assembler": "zip", "transport": "sftp", "address": sshd.address, "host_key": sshd.host_key, "credentials": "sftp", **more
    }  # fmt: skip


def rest_target(repository: Repository, **more: Any) -> dict[str, Any]:
    return {
        "assembler": "zip", "transport": "rest", "address": f"{repository.url}/server/api", "collection": "reviewed-theses",
        "credentials": "rest", "status": {ARCHIVED: "accepted", WITHDRAWN: "rejected", "default": "submitted"}, **more,
    }  # fmt: skip


def credentials(folder: Path, *, repository: Repository | None = None, sshd: Sshd | None = None) -> Path:
    """A folder with the files that the targets' credentials name, which nobody else may read."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, text in (
        ("rest", json.dumps(repository.login) if repository else None),
        ("sftp", sshd.key.read_text() if sshd else None),
    ):
        if text is not None:
            file = folder / name
            file.touch(mode=0o600)
            file.write_text(text)
    return folder


def archive_files(
    targets: dict[str, dict[str, Any]], *, credentials: Path | None = None, image: str = "", every: str = "1h"
) -> dict[str, str]:
    """The files of the archive: those of ``archive/``, and the targets.

    With ``credentials``, its tasks run as processes with this machine's Python and that folder; else in containers of ``image``, with a mount.
    """
    files = {
        str(file.relative_to(HERE / "archive")): file.read_text("utf-8")
        for file in sorted((HERE / "archive").rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    changes = [("every: 1h", f"every: {every}")]
    if credentials is None:
        changes += [("image: deposit-tools:1", f"image: {image}")]
    else:
        mount = "  mounts:\n  - {name: credentials, path: /etc/deposit/credentials, read_only: true}\n"
        of_image = "  image: deposit-tools:1                                # of image/Dockerfile\n"
        changes += [(of_image, ""), (mount, "")]
        changes += [
            ("/opt/deposit/bin", str(Path(sys.executable).parent)),
            ("/etc/deposit/credentials", str(credentials)),
        ]
    for before, after in changes:
        if before not in files[WORKFLOW]:
            raise ValueError(f"{WORKFLOW} has no {before!r} any more")
        files[WORKFLOW] = files[WORKFLOW].replace(before, after)
    return files | {f"targets/{name}.yaml": yaml.safe_dump(target) for name, target in targets.items()}


def submission(id: str, targets: Iterable[str], **more: Any) -> dict[str, Any]:
    """A document to hand in."""
    return {
        "id": id, "title": "On the bones of Etruria", "authors": ["Ann Archer"], "date": "2026-05-04",
        "items": [{"deposit": f"{id}.{target}"} for target in targets], **more,
    }  # fmt: skip
