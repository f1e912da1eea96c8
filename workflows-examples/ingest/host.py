"""Sets an ingest up beside a server of arkqueue: its services, the settings of the ingest host, and what the archive of a collection holds."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import yaml

from arkqueue.errors import ArkqueueError

HERE = Path(__file__).resolve().parent
PATIENCE = 60.0
"""Seconds until the services must be there."""
LAUNCHER = """\
# Runs a program of tools/ with the Python of this ingest host, and says where the host's settings are.
export INGEST_SETTINGS={settings}
exec {python} -B "tools/$1.py" "$2"
"""


def collection_files(settings: Path, profiles: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, str]:
    """What the archive of a collection holds: its workflow, profiles and programs, and how they are run on this host. ``profiles``: fields that differ from those of the files."""
    files = _files("collection")
    for name, fields in (profiles or {}).items():
        path = f"profiles/{name}.yaml"
        files[path] = yaml.safe_dump(yaml.safe_load(files[path]) | dict(fields))
    return files | {"ingest": _launcher(settings)}


def access_files(settings: Path) -> dict[str, str]:
    """What the archive of the access queue holds."""
    job = "tools/job.py"
    return _files("access") | {job: _files("collection")[job], "access": _launcher(settings)}


def _files(name: str) -> dict[str, str]:
    folder = HERE / name
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".yaml", ".json")]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths}


def _launcher(settings: Path) -> str:
    return LAUNCHER.format(settings=shlex.quote(str(settings)), python=shlex.quote(sys.executable))


def write(work: Path, files: Mapping[str, str]) -> None:
    """Put what an archive holds into a working copy."""
    for path, text in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text, "utf-8")


@dataclass
class Services:
    """The services, which run in a process of their own."""

    folder: Path
    database: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "services.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "services.py"), str(self.folder), "--database", self.database],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE
        while not self.are_there():
            if self.process.poll() is not None or time.monotonic() > deadline:
                remedy = f"See {self.folder}/services.log"
                raise ArkqueueError("the services", "did not start", remedy)
            time.sleep(0.05)

    def are_there(self) -> bool:
        try:
            return self.switch("minting") is not None
        except (OSError, KeyError):
            return False

    @property
    def urls(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "services.json").read_text("utf-8")))

    def switch(self, service: str, **faults: Any) -> Any:
        """Switch the faults of a service on; those that are not named are off."""
        url = self.urls["mail_faults" if service == "mail" else service]
        with urlopen(Request(f"{url}/faults", json.dumps(faults).encode(), method="PUT"), timeout=10) as answer:
            return json.load(answer)

    def get(self, service: str, path: str) -> Any:
        with urlopen(f"{self.urls[service]}/{path}", timeout=30) as answer:
            return json.load(answer)

    def content(self, name: str, data: bytes | str) -> str:
        """A file on the depositor's server; its URL."""
        path = self.folder / "content" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return f"{self.urls['content']}/{name}"

    @property
    def mails(self) -> list[Path]:
        return sorted((self.folder / "mail").glob("*.eml"))

    @property
    def callbacks(self) -> list[Path]:
        return sorted((self.folder / "callback").iterdir())

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None


@contextmanager
def services(folder: Path, database: str) -> Iterator[Services]:
    made = Services(folder, database)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def write_settings(
    path: Path, services: Services, home: Path, token: str, *, large: str = "1GiB", **working_storage: Any
) -> None:
    """The settings of the ingest host, which programs read each time: where the services and the server are, and how full the working storage may be."""
    token_file = path.with_suffix(".token")
    _write_private(token_file, token)
    _write_private(
        path,
        json.dumps(
            {
                "services": services.urls,
                "sender": "ingest@example.org",
                "arkqueue": [sys.executable, "-m", "arkqueue"],
                "url_file": str(home / "url"),
                "token_file": str(token_file),
                "access": {"large": large, "folder": str(services.folder / "delivery")},
                "working_storage": {
                    "threshold": 80,
                    "threshold_unestimated": 70,
                    "retry_after": 5,
                    "reservations": str(path.with_name("reservations")),
                    **working_storage,
                },
            },
            indent=1,
        ),
    )


def change_working_storage(path: Path, **changes: Any) -> None:
    """Set how full the working storage may be, as an administrator would."""
    settings = json.loads(path.read_text("utf-8"))
    change_settings(path, working_storage=settings["working_storage"] | changes)


def change_settings(path: Path, **changes: Any) -> None:
    """Set other settings of the ingest host."""
    _write_private(path, json.dumps(json.loads(path.read_text("utf-8")) | changes, indent=1))


def _write_private(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def checkm(profile: str, lines: list[Mapping[str, Any]]) -> str:
    """A manifest as depositors write it."""
    fields = {
        "url": "nfo:fileUrl", "digest_type": "nfo:hashAlgorithm", "digest_value": "nfo:hashValue", "size": "nfo:fileSize", "name": "nfo:fileName",
        "ark": "mrt:primaryIdentifier", "local_id": "mrt:localIdentifier", "erc_who": "mrt:creator", "erc_what": "mrt:title", "erc_when": "mrt:date",
    }  # fmt: skip
    head = f"#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/{profile}\n#%fields | {' | '.join(fields.values())}\n"
    return head + "".join(" | ".join(str(line.get(name, "")) for name in fields) + "\n" for line in lines) + "#%eof\n"
