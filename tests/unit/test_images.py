"""By which name an image is known that a task has run in."""

from __future__ import annotations

import pytest
from docker.auth import INDEX_NAME

from arkqueue.executor.docker.images import digest_of

DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("debian", "debian"),
        ("debian:12", "debian"),
        (f"debian@{DIGEST}", "debian"),
        (f"debian:12@{DIGEST}", "debian"),
        ("library/debian:12", "debian"),
        (f"{INDEX_NAME}/debian:12", "debian"),
        (f"{INDEX_NAME}/library/debian", "debian"),
        (f"index.{INDEX_NAME}/library/debian", "debian"),
        (f"{INDEX_NAME}/team/tool:1", "team/tool"),
        ("localhost/tool:1", "localhost/tool"),
        ("registry.example:5000/team/tool", "registry.example:5000/team/tool"),
        ("registry.example/library/tool:1", "registry.example/library/tool"),
    ],
)
def test_it_is_known_by_what_its_own_registry_calls_it(name: str, known: str) -> None:
    image = {"Id": "sha256:1", "RepoDigests": [f"other.example/{known}@sha256:2", f"{known}@{DIGEST}"]}
    assert digest_of(name, image) == f"{known}@{DIGEST}"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("bb:1", "127.0.0.1:5000/bb"),
        ("tool", "x/othertool"),
        ("tool", "x/tool"),
        ("library/team/tool", "team/tool"),
        ("team/tool", "registry.example/team/tool"),
        ("registry.example/tool", "registry.example/library/tool"),
        ("0123456789ab", "debian"),
        (DIGEST, "debian"),
    ],
)
def test_what_only_another_name_says_of_it_is_not_its_own(name: str, known: str) -> None:
    assert digest_of(name, {"Id": "sha256:1", "RepoDigests": [f"{known}@{DIGEST}"]}) == "sha256:1"


def test_one_that_no_registry_has_is_known_to_its_engine_only() -> None:
    assert digest_of("bb:1", {"Id": "sha256:1", "RepoDigests": None}) == "sha256:1"
