"""A folder of a file system, such as a share that is mounted. A package appears in it whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from targets import Receipt, Target
from task import Failure, Unreachable


class FolderSession:
    def __init__(self, target: Target) -> None:
        self._folder = Path(target.address)
        if not self._folder.is_dir():
            raise Unreachable(f"{target.name}: the folder {self._folder} is not there")

    def find(self, name: str) -> Receipt | None:
        file = self._folder / name
        try:
            return Receipt(str(file), file.as_uri()) if file.exists() else None
        except OSError as error:
            raise Failure(f"{file}: {error.strerror}") from None

    def send(self, name: str, package: Path, metadata: dict[str, Any]) -> Receipt:  # noqa: ARG002
        file, part = self._folder / name, self._folder / f".{name}.part"
        try:
            with package.open("rb") as source, part.open("wb") as stored:
                shutil.copyfileobj(source, stored, 1 << 20)
                stored.flush()
                os.fsync(stored.fileno())
            part.rename(file)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise Failure(f"{error.filename or file}: {error.strerror}") from None
        return Receipt(str(file), file.as_uri())

    def digest(self, receipt: Receipt) -> str:
        try:
            with open(receipt.package, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Failure(f"{receipt.package}: {error.strerror}") from None

    def status(self, reference: str) -> bytes:
        raise Failure(f"a folder has no status document {reference}")

    def close(self) -> None:
        pass
