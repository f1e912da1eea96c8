"""The calls of the API: how each response is written and sent, and how the OpenAPI document describes it.

FastAPI would build a serializer for the answers of each call, which takes 0.3 s at the start of
every server, and 6 MB. It would write the JSON of an answer as a whole in the event loop. For a run
of 10,000 tasks, no other request would be answered for 50 ms. Here, the thread that has made an
answer writes its JSON, some hundred parts at a time. The event loop only sends the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, cached_property, wraps
from inspect import iscoroutinefunction
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MOST: Final = 200
"""The parts of an answer whose JSON is written at once. A task is one part; so is each text of a list."""


class Call(APIRoute):
    """A call of the API. Its answer is sent in pieces of at most ``MOST`` parts."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._options = {"path": path, "endpoint": endpoint, **options}
        without_serializers = {**options, "response_model": None, "responses": None}
        super().__init__(path, _written(endpoint, self._answer), **without_serializers)

    @cached_property
    def described(self) -> APIRoute:
        """This call with the kinds of its answers, for the OpenAPI document."""
        return APIRoute(**self._options)

    @property
    def reads_body(self) -> bool:
        """Whether this call takes a body. An endpoint that reads its body in pieces says so in the
        OpenAPI document alone.
        """
        return self.body_field is not None or "requestBody" in (self.openapi_extra or {})

    def _answer(self, given: dict[str, Any], answer: Any) -> Any:
        """The response for an answer. ``given``: the arguments of the endpoint. One of them may be a
        response with the status and the headers that the endpoint has set.
        """
        if isinstance(answer, Response) or answer is None:
            return answer
        set_ = given.get(self.dependant.response_param_name or "")
        status = (set_.status_code if set_ is not None else None) or self.status_code or 200
        return Pieces([*json_of(answer)], status, set_.headers if set_ is not None else None)


def _written(endpoint: Callable[..., Any], answer: Callable[[dict[str, Any], Any], Any]) -> Callable[..., Any]:
    """An endpoint that returns responses. The answers of an asynchronous endpoint are written in a
    thread, too.
    """
    if iscoroutinefunction(endpoint):

        @wraps(endpoint)
        async def wait(**given: Any) -> Any:
            return await run_in_threadpool(answer, given, await endpoint(**given))

        return wait

    @wraps(endpoint)
    def call(**given: Any) -> Any:
        return answer(given, endpoint(**given))

    return call


class Pieces(Response):
    """An answer whose body is there in pieces. Each is sent when the client has taken the ones before."""

    media_type = "application/json"

    def __init__(self, pieces: list[bytes], status: int, headers: Headers | None) -> None:
        super().__init__(None, status, {**(headers or {}), "content-length": str(sum(map(len, pieces)))})
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  as Starlette calls it
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def json_of(value: Any) -> Iterator[bytes]:
    """The JSON of a value, in pieces of at most ``MOST`` parts each."""
    if not _is_long(value):
        yield _json(value)
    elif isinstance(value, list):
        yield b"["
        yield from _joined(_elements(portion) for portion in _portions(value))
        yield b"]"
    else:
        yield b"{"
        yield from _joined(_field(name, part) for name, part in _fields(value))
        yield b"}"


def _json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null")


def _portions(values: list[Any]) -> Iterator[list[Any]]:
    """The elements of a list, as many at a time as have ``MOST`` parts together; at least one."""
    portion: list[Any] = []
    parts = 0
    for value in values:
        of_this = _count(value, MOST)
        if portion and parts + of_this > MOST:
            yield portion
            portion, parts = [], 0
        portion.append(value)
        parts += of_this
    if portion:
        yield portion


def _elements(portion: list[Any]) -> Iterator[bytes]:
    """Elements of a list, without its brackets."""
    if len(portion) == 1:
        yield from json_of(portion[0])
    else:
        yield _json(portion)[1:-1]


def _field(name: str, value: Any) -> Iterator[bytes]:
    yield _json(name) + b":"
    yield from json_of(value)


def _joined(each: Iterable[Iterator[bytes]]) -> Iterator[bytes]:
    for number, pieces in enumerate(each):
        if number:
            yield b","
        yield from pieces


def _fields(value: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass, or the entries of a mapping."""
    if isinstance(value, dict):
        return list(value.items())
    return [(field.name, getattr(value, field.name)) for field in fields(value)]


def _is_long(value: Any) -> bool:
    return _count(value, MOST) > MOST


def _count(value: Any, most: int) -> int:
    """How many parts a value has; a number above ``most`` if it has more than that."""
    if isinstance(value, list):
        inside: Iterable[Any] = value
    elif isinstance(value, dict):
        inside = value.values()
    else:
        inside = (getattr(value, name) for name in _compound(cast(Hashable, type(value))))
    count = 0 if isinstance(value, list) else 1
    for part in inside:
        count += _count(part, most - count)
        if count > most:
            break
    return count


@cache
def _compound(kind: Hashable) -> tuple[str, ...]:
    """The fields of a dataclass that may have parts of their own; none of another class."""
    if not isinstance(kind, type) or not is_dataclass(kind):
        return ()
    return tuple(name for name, hint in get_type_hints(kind).items() if _may_have_parts(hint))


def _may_have_parts(hint: Any) -> bool:
    kinds = {get_origin(hint) or hint, *(get_origin(each) or each for each in get_args(hint))}
    return any(kind in (list, dict, Any, object) or is_dataclass(kind) for kind in kinds)
