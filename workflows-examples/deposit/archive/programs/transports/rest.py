"""A repository with the REST interface of DSpace 7: a file is uploaded into a workspace item, which goes into the collection's workflow.

Only the last of these steps is a deposit. What an attempt leaves before it is a draft, which the next attempt removes: it knows the draft by the
collection and by the name of the uploaded file, as a draft whose attempt was killed after the upload has no metadata yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
from targets import Receipt, Target
from task import Failure, Unreachable, shown

PATIENCE = 60.0
"""Seconds for an answer."""
LONGEST_ANSWER = 1 << 20
"""Bytes of an answer, but for those of a package."""
NOT_NOW = {429, 502, 503, 504}
"""What a server, or the proxy before it, answers when it is not there for us now."""
UNDECIDED = {500, 502, 504}
"""Answers after which the deposit may or may not have been made."""
NOT_HTTP = (httpx.InvalidURL, httpx.DecodingError)
LONGEST_ADDRESS = 2000
MOST_PAGES = 1000
"""Pages of a hundred drafts that are looked through."""


class RestSession:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._base = target.address.rstrip("/") + "/"
        self._client = httpx.Client(base_url=self._base, timeout=PATIENCE)
        try:
            login = json.loads(target.secret().read_bytes())
            user, password = str(login["user"]), str(login["password"])
        except (ValueError, KeyError, TypeError):
            raise Failure(f'target {target.name}: its credentials are not {{"user": …, "password": …}}') from None
        with self._understanding():
            token = self._ask("GET", "security/csrf").headers.get("DSPACE-XSRF-TOKEN", "")
            self._client.headers["X-XSRF-TOKEN"] = token
            answer = self._ask("POST", "authn/login", data={"user": user, "password": password})
            self._client.headers["Authorization"] = answer.headers.get("Authorization", "")

    def find(self, name: str) -> Receipt | None:
        with self._understanding():
            return self._find(name)

    def _find(self, name: str) -> Receipt | None:
        for draft in self._drafts(name):
            self._ask("DELETE", f"submission/workspaceitems/{draft}")
        query = {
            "query": f'dc.identifier.other:"{name}"', "configuration": "workspace", "scope": self._target.collection,
        }  # fmt: skip
        found = self._json(self._ask("GET", "discover/search/objects", params=query))
        objects = [
            one["_embedded"]["indexableObject"] for one in found["_embedded"]["searchResult"]["_embedded"]["objects"]
        ]
        deposits = [one for one in objects if one["type"] != "workspaceitem"]
        return self._receipt(deposits[0]) if deposits else None

    def _drafts(self, name: str) -> list[int]:
        """The drafts of ours that earlier attempts left of this deposit: those in its collection that have its package."""
        found, page, pages = [], 0, 1
        person = (
            self._json(self._ask("GET", "authn/status"))["_links"]["eperson"]["href"].rstrip("/").rpartition("/")[2]
        )
        while page < pages:
            query = {"uuid": person, "page": page, "size": 100}
            answer = self._json(self._ask("GET", "submission/workspaceitems/search/findBySubmitter", params=query))
            for draft in answer.get("_embedded", {}).get("workspaceitems", []):
                sections = draft["sections"]
                names = [
                    title["value"]
                    for file in sections.get("upload", {}).get("files", [])
                    for title in file["metadata"].get("dc.title", [])
                ]
                if sections["collection"] == self._target.collection and name in names:
                    found.append(int(draft["id"]))
            page, pages = page + 1, min(int(answer["page"]["totalPages"]), MOST_PAGES)
        return found

    def send(self, name: str, package: Path, metadata: dict[str, Any]) -> Receipt:
        with self._understanding():
            draft = self._draft(name, package, metadata)
        answer = self._deposit(urljoin(self._base, draft))
        try:
            with self._understanding():
                return self._receipt(self._json(answer))
        except Failure as error:
            raise Failure(self._unknown(str(error))) from None

    def _draft(self, name: str, package: Path, metadata: dict[str, Any]) -> str:
        """A new draft with the package and its metadata; its address."""
        with package.open("rb") as file:
            made = self._ask(
                "POST", "submission/workspaceitems", params={"owningCollection": self._target.collection},
                files={"file": (name, file, "application/zip")},
            )  # fmt: skip
        item = self._json(made)["_embedded"]["workspaceitems"][0]
        draft = f"submission/workspaceitems/{int(item['id'])}"
        values = {
            "dc.title": [metadata["title"]],
            "dc.contributor.author": metadata.get("authors", []),
            "dc.date.issued": [metadata["date"]],
            "dc.identifier.other": [name],
        }
        page = "/sections/traditionalpageone"
        patch: list[dict[str, Any]] = [
            {"op": "add", "path": f"{page}/{field}", "value": [{"value": value} for value in of]}
            for field, of in values.items()
            if of
        ]
        patch.append({"op": "add", "path": "/sections/license/granted", "value": "true"})
        try:
            self._ask("PATCH", draft, json=patch)
        except (Failure, Unreachable):
            # The search knows a draft by its metadata: one without is removed now, or nobody finds it again.
            with suppress(Failure, Unreachable):
                self._ask("DELETE", draft)
            raise
        return draft

    def _deposit(self, draft: str) -> httpx.Response:
        """The step that makes the deposit. Where its answer is lost, nobody knows whether it was made."""
        try:
            answer = self._answer(
                "POST", "workflow/workflowitems", content=draft, headers={"Content-Type": "text/uri-list"}
            )
        except httpx.ConnectError as error:
            raise Unreachable(f"{self._target.name} does not answer: {error}") from None
        except (httpx.RequestError, Failure) as error:
            raise Failure(self._unknown(str(error) or type(error).__name__)) from None
        if answer.status_code in UNDECIDED:
            raise Failure(self._unknown(self._message(answer)))
        return self._judged(answer)

    def _unknown(self, why: str) -> str:
        return (
            f"{self._target.name}: it is not known whether the deposit has arrived: {why}. `arkqueue retry` asks first."
        )

    def digest(self, receipt: Receipt) -> str:
        digest = hashlib.sha256()
        try:
            with self._understanding(), self._client.stream("GET", self._own(receipt.package)) as answer:
                if answer.status_code != 200:
                    answer.read()
                    self._judged(answer)
                for piece in answer.iter_bytes():
                    digest.update(piece)
        except httpx.TransportError as error:
            raise Unreachable(f"{self._target.name} does not answer: {error}") from None
        return digest.hexdigest()

    def status(self, reference: str) -> bytes:
        with self._understanding():
            return self._ask("GET", self._own(reference)).content

    def close(self) -> None:
        self._client.close()

    def _receipt(self, item: dict[str, Any]) -> Receipt:
        """Where the parts of a workflow item or an item are."""
        links = {
            name: self._own(link["href"])
            for name, link in item["_links"].items()
            if name in ("package", "status", "self")
        }
        return Receipt(links["package"], links["self"], links["status"])

    @contextmanager
    def _understanding(self) -> Iterator[None]:
        """A repository may answer anything. An answer that is no DSpace's is a failure with a text."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, *NOT_HTTP) as error:
            said = shown(f"{type(error).__name__}: {error}")
            raise Failure(f"{self._target.name} answers with something that is not DSpace's: {said}") from None

    def _own(self, url: str) -> str:
        """An address that the repository gave us: our password goes to no other host."""
        if not url.isprintable() or len(url) > LONGEST_ADDRESS:
            raise Failure(f"{self._target.name} refers to {shown(url[:200])}, which is not a valid address")
        whole = urljoin(self._base, url)
        if urlsplit(whole)[:2] != urlsplit(self._base)[:2]:
            raise Failure(f"{self._target.name} refers to {shown(whole)}, which is not at {self._base}")
        return whole

    def _ask(self, method: str, url: str, **what: Any) -> httpx.Response:
        """An answer that is a yes."""
        try:
            return self._judged(self._answer(method, url, **what))
        except httpx.TransportError as error:
            raise Unreachable(f"{self._target.name} does not answer: {error or type(error).__name__}") from None

    def _answer(self, method: str, url: str, **what: Any) -> httpx.Response:
        with self._client.stream(method, url, **what) as answer:
            text = b""
            for piece in answer.iter_bytes():
                text += piece
                if len(text) > LONGEST_ANSWER:
                    raise Failure(f"{self._target.name} answers {method} {url} with more than {LONGEST_ANSWER} bytes")
            headers = {k: v for k, v in answer.headers.items() if k not in ("content-encoding", "transfer-encoding")}
            return httpx.Response(answer.status_code, headers=headers, content=text)

    def _judged(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success:
            return answer
        kind = Unreachable if answer.status_code in NOT_NOW else Failure
        raise kind(self._message(answer))

    def _message(self, answer: httpx.Response) -> str:
        """The repository's own message."""
        try:
            message = answer.json()["message"]
        except (ValueError, KeyError, TypeError, RecursionError):
            message = answer.text or answer.reason_phrase
        return f"{self._target.name} answers {answer.status_code}: {shown(str(message))}"

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise Failure(
                f"{self._target.name} answers with something that is not JSON: {shown(answer.text[:200])}"
            ) from None
