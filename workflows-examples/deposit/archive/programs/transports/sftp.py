"""A folder of a host that is reached over SFTP. A package appears in it whole or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
from targets import Receipt, Target
from task import Failure, Unreachable

PATIENCE = 30.0
"""Seconds for a host to answer."""
PIECE = 1 << 15


class SftpSession:
    def __init__(self, target: Target) -> None:
        self._target, parts = target, urlsplit(target.address)
        if parts.scheme != "sftp" or not parts.hostname or not parts.username:
            raise Failure(f"target {target.name}: address: write it like sftp://user@host/folder")
        self._folder = parts.path.rstrip("/")
        self._url = f"sftp://{parts.hostname}{self._folder}"
        self._client = paramiko.SSHClient()
        self._client.set_missing_host_key_policy(paramiko.RejectPolicy())
        host = parts.hostname if (parts.port or 22) == 22 else f"[{parts.hostname}]:{parts.port}"
        try:
            entry = HostKeyEntry.from_line(f"{host} {target.host_key}")
        except (InvalidHostKey, ValueError):
            entry = None
        if entry is None:
            raise Failure(f"target {target.name}: host_key is not the public key of a host, like: ssh-ed25519 AAAA…")
        self._client.get_host_keys().add(host, entry.key.get_name(), entry.key)
        key = self._key(target)
        try:
            self._client.connect(
                parts.hostname, parts.port or 22, parts.username, pkey=key,
                timeout=PATIENCE, banner_timeout=PATIENCE, auth_timeout=PATIENCE, allow_agent=False, look_for_keys=False,
            )  # fmt: skip
            self._sftp = self._client.open_sftp()
            # A host that stops in the middle of a transfer does not answer either.
            if channel := self._sftp.get_channel():
                channel.settimeout(PATIENCE)
        except paramiko.BadHostKeyException:
            self.close()
            raise Failure(f"{target.name}: {parts.hostname} has another host key than the one in targets/") from None
        except paramiko.AuthenticationException as error:
            self.close()
            raise Failure(f"{target.name}: {parts.hostname} refuses the key of {parts.username}: {error}") from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise Unreachable(f"{target.name}: {parts.hostname} does not answer: {error}") from None

    @staticmethod
    def _key(target: Target) -> paramiko.PKey:
        secret = target.secret()
        for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
            try:
                return kind.from_private_key_file(str(secret))
            except (paramiko.SSHException, ValueError):
                continue
        raise Failure(f"target {target.name}: {secret} is not an OpenSSH private key without a passphrase")

    def find(self, name: str) -> Receipt | None:
        try:
            self._sftp.stat(f"{self._folder}/{name}")
        except FileNotFoundError:
            return None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._refusal("stat", name, error) from None
        return self._receipt(name)

    def send(self, name: str, package: Path, metadata: dict[str, Any]) -> Receipt:  # noqa: ARG002
        part = f"{self._folder}/.{name}.part"
        try:
            self._sftp.put(str(package), part)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._refusal("put", name, error) from None
        try:
            self._sftp.posix_rename(part, f"{self._folder}/{name}")
        except (paramiko.SSHException, EOFError, ConnectionError, TimeoutError) as error:
            raise Failure(
                f"{self._target.name}: it is not known whether the deposit has arrived, the connection broke: {error or type(error).__name__}."
                " `arkqueue retry` asks first."
            ) from None
        except OSError as error:
            raise self._refusal("rename", name, error) from None
        return self._receipt(name)

    def digest(self, receipt: Receipt) -> str:
        digest = hashlib.sha256()
        try:
            with self._sftp.open(receipt.package) as file:
                file.prefetch()
                while piece := file.read(PIECE):
                    digest.update(piece)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._refusal("get", Path(receipt.package).name, error) from None
        return digest.hexdigest()

    def status(self, reference: str) -> bytes:
        raise Failure(f"SFTP has no status document {reference}")

    def close(self) -> None:
        self._client.close()

    def _receipt(self, name: str) -> Receipt:
        return Receipt(f"{self._folder}/{name}", f"{self._url}/{name}")

    def _refusal(self, verb: str, name: str, error: Exception) -> Exception:
        """What the host says is a refusal; where it says nothing any more, it is away."""
        is_said = (
            isinstance(error, OSError)
            and not isinstance(error, (ConnectionError, TimeoutError))
            and not self._is_gone()
        )
        said = str(error) if is_said else f"the connection broke ({str(error) or type(error).__name__})"
        return (Failure if is_said else Unreachable)(f"{self._target.name}: {verb} {self._folder}/{name}: {said}")

    def _is_gone(self) -> bool:
        transport, channel = self._client.get_transport(), self._sftp.get_channel()
        return transport is None or not transport.is_active() or channel is None or channel.closed
