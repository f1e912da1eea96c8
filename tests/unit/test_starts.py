"""A start imports only what the program needs, and a command that calls a server reads its settings
without the models of the whole configuration.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from arkqueue.cli import beginning, runs, show
from arkqueue.config import Configuration
from arkqueue.config_sources import client_settings
from arkqueue.errors import ConfigurationError
from arkqueue.model import Trigger
from arkqueue.states import RunState, State

URL = "https://queue.example.org"


def imported_with(*modules: str) -> set[str]:
    """The modules that a new process has after it has imported the given ones."""
    code = f"import sys, {', '.join(modules)}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("text", "environ", "server"),
    [
        ("", {}, None),
        (f'server = "{URL}"\ntoken = "abc"', {}, None),
        ('server = "http://other"', {"ARKQUEUE_SERVER": URL, "ARKQUEUE_TOKEN": "abc\r\n"}, None),
        ('server = "http://other"', {"ARKQUEUE_SERVER": "http://third"}, URL),
        ("", {"ARKQUEUE_SERVER": "", "ARKQUEUE_TASK": "index", "XDG_DATA_HOME": "/data"}, None),
    ],
)
def test_settings_of_a_client_are_those_of_the_whole_configuration(
    text: str, environ: dict[str, str], server: str | None, tmp_path: Path
) -> None:
    (tmp_path / "arkqueue.toml").write_text(text)
    environ |= {"ARKQUEUE_HOME": f"{tmp_path}/../{tmp_path.name}"}
    found, whole = client_settings(environ, None, None, server), Configuration.load(environ, server=server)
    assert found is not None
    assert (found.home, found.server, found.token) == (whole.home, whole.server, whole.token)


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ("sever = 'x'", {}),
        ("server = 8417", {}),
        ("token = 'a b'", {}),
        ("", {"ARKQUEUE_TOKEN": "ä"}),
        ("", {"ARKQUEUE_SERVER": "http://\udcff"}),
        ("", {"ARKQUEUE_SEVER": ""}),
        ("", {"ARKQUEUE_SLOTS": "0"}),
        ("", {"DOCKER_HOST": "nowhere:"}),
        ("slots = 0", {}),
    ],
)
def test_everything_that_may_be_a_fault_is_left_to_the_whole_configuration(
    text: str, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "arkqueue.toml").write_text(text)
    assert client_settings(environ, None, str(tmp_path), None) is None


def test_file_that_is_missing_or_garbled_is_refused_alike(tmp_path: Path) -> None:
    (tmp_path / "garbled.toml").write_text("server =")
    for name in ("missing.toml", "garbled.toml"):
        with pytest.raises(ConfigurationError) as early:
            client_settings({}, tmp_path / name, None, None)
        with pytest.raises(ConfigurationError) as late:
            Configuration.load({}, tmp_path / name)
        assert str(early.value) == str(late.value)


def test_commands_that_call_a_server_import_no_models() -> None:
    names = "archive backfill client delivery holds lock logs pauses report runs scans show status token trigger verbs watch"
    found = imported_with(*(f"arkqueue.cli.{name}" for name in names.split()))
    assert not found & {"pydantic", "arkqueue.config", "arkqueue.model", "psycopg", "yaml", "rich", "asyncio"}


def test_managers_import_no_web_framework_and_no_http_client() -> None:
    found = imported_with(
        "arkqueue.cli.serve", "arkqueue.queue_manager", "arkqueue.task_manager", "arkqueue.gateway.sql"
    )
    assert not found & {"fastapi", "starlette", "uvicorn", "httpx", "rich", "docker", "pygit2", "subvertpy"}


def test_task_manager_imports_no_reader_of_workflow_files() -> None:
    assert not imported_with("arkqueue.task_manager", "arkqueue.gateway.sql") & {"yaml", "arkqueue.workflow.parsing"}


def test_commands_know_every_state_and_trigger() -> None:
    assert (set(runs.STATES), set(runs.TRIGGERS)) == (set(RunState), set(Trigger))
    assert set(show.TASK_STATES) == set(State)


def test_objects_of_imports_are_not_examined_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_freeze_count()
    with beginning():
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() == before, "nothing was imported"
    with beginning():
        monkeypatch.setitem(sys.modules, "just_imported", ModuleType("just_imported"))
    assert gc.get_freeze_count() >= before + len(made)
