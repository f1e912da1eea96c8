"""Documents agree with the code: generated parts are up to date, and everything that a page names
exists.

``python -m tests.unit.test_documentation`` writes the generated parts of the pages.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import click
import pytest

from arkqueue.config import PREFIX, Configuration, Credentials, Docker, PersistentMount, variables
from arkqueue.db.statements import load
from arkqueue.model import AttemptId, Claim, End, Handed, PayloadKind, TaskDefinition
from arkqueue.queue.tokens import Scope
from arkqueue.states import MOVES, SETTLED, Event, State, expand
from arkqueue.task_manager import environment
from arkqueue.workspace import Workspace

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
INSTALLATION = ROOT / "docs" / "installation.md"
FOR_ADMINISTRATORS = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "operations",
        "configuration",
        "installation",
        "access",
        "queue",
        "submissions",
        "maintenance",
        "monitoring",
    )
]
SECURITY = ROOT / "docs" / "security.md"
TESTS = ROOT / "tests"
GLOSSARY = ROOT / "docs" / "glossary.md"
WORKFLOWS = ROOT / "docs" / "workflows.md"
EXAMPLES = sorted((ROOT / "workflows-examples").glob("*/README.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")), *EXAMPLES]
CODE_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
IN_A_REPOSITORY = {"arkqueue/servers/", "arkqueue/notify", "arkqueue/unchecked/"}
"""What `hook install` makes in a repository; it only looks like a path of ours."""
IMAGES = {"arkqueue/arkqueue", "arkqueue/default"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- What is drawn from the code -------------------------------------------------------------------------------------


def states_drawn() -> str:
    """The table of moves as a diagram, and the sentence of each event."""
    arrows: dict[tuple[State, State], list[Event]] = {}
    for event, move in MOVES.items():
        for source in State:
            if source in move.sources:
                arrows.setdefault((source, move.target), []).append(event)
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> waiting: planned"]
    for (source, target), events in arrows.items():
        lines.append(f"    {source} --> {target}: {', '.join(e.replace('_', ' ') for e in events)}")
    lines += [f"    {state} --> [*]" for state in State if state in SETTLED]
    lines += ["```", "", "| event | from | to | when |", "|---|---|---|---|"]
    for event, move in MOVES.items():
        sources = ", ".join(state for state in State if state in move.sources)
        lines.append(f"| {event.replace('_', ' ')} | {sources} | {move.target} | {move.meaning} |")
    return "\n".join(lines)


def layers_drawn() -> str:
    """The layers of the import contract, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return "\n".join(["```", *(layer.replace("arkqueue.", "") for layer in layers), "```"])


DRAWN = {"states": states_drawn, "layers": layers_drawn}


def redrawn(text: str) -> str:
    """A page with its drawn parts as the code says now."""
    for name, draw in DRAWN.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        assert text.count(begin) == text.count(end) == 1, f"{name} has no place in the page"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{draw()}\n{end}{rest.partition(end)[2]}"
    return text


def test_drawn_parts_are_what_the_code_says() -> None:
    page = ARCHITECTURE.read_text("utf-8")

    assert page == redrawn(page), "python -m tests.unit.test_documentation"


# --- What pages name exists ------------------------------------------------------------------------------------------


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text("utf-8"))


def spans(page: Path) -> list[str]:
    return CODE_SPAN.findall(prose(page))


@cache
def functions_of(file: Path) -> frozenset[str]:
    return frozenset(n.name for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.FunctionDef))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_and_tests_that_a_page_names_exist(page: Path) -> None:
    missing = []
    for span in spans(page):
        if span in {*IN_A_REPOSITORY, *IMAGES} or not re.fullmatch(
            r"(arkqueue|tests|docs|hooks|workflows-examples)/[\w./-]*(::\w+)?", span
        ):
            continue
        path, _, test = span.partition("::")
        file = ROOT / path
        if not file.exists() or (test and test not in functions_of(file)):
            missing.append(span)

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if not target.startswith("http")]

    dead = []
    for target in targets:
        path, _, heading = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (heading and heading not in headings(file)):
            dead.append(target)

    assert dead == []


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_tests_that_the_page_on_security_names_exist() -> None:
    rows = [line.split("|") for line in SECURITY.read_text("utf-8").splitlines() if line.startswith("| ")]
    names = {path: set(re.findall(r"def (test_\w+)", path.read_text("utf-8"))) for path in TESTS.rglob("test_*.py")}
    missing, files = [], list[Path]()
    for span in [span for row in rows[1:] for span in CODE_SPAN.findall(row[-2])]:
        if span.endswith((".py", "/")):
            place = ROOT / span if "/" in span else TESTS / "security" / span
            files = sorted(place.rglob("test_*.py")) if span.endswith("/") else [place]
            found = bool(files) and all(file in names for file in files)
        else:
            pattern = re.compile(re.escape(span).replace("…", r"\w*"))
            found = any(pattern.fullmatch(name) for file in files for name in names[file])
        if not found:
            missing.append(span)
    assert missing == []


def test_statements_that_the_architecture_names_exist() -> None:
    blocks = load(expand)
    steps = ARCHITECTURE.read_text("utf-8").partition("## The life of a commit")[2].partition("## The states")[0]
    groups = re.findall(r"\(((?:`\w+`(?:, )?)+)\)", steps)
    names = [name for group in groups for name in CODE_SPAN.findall(group)]

    assert len(names) > 15
    assert [name for name in names if name not in blocks] == []


# --- Commands --------------------------------------------------------------------------------------------------------


def commands(page: Path) -> Iterator[list[str]]:
    """Every ``arkqueue …`` of a page, without the word itself: lines of shell blocks, and code in sentences."""
    lines = [
        line
        for language, block in FENCE.findall(page.read_text("utf-8"))
        if language == "sh"
        for line in block.splitlines()
    ]
    for text in [*lines, *spans(page)]:
        if "…" in text or not re.match(r"(\w+=\S+ )*arkqueue [a-z-]", text):
            continue
        words = shlex.split(re.split(r" [>|] ", text)[0], comments=True)
        yield words[words.index("arkqueue") + 1 :]


def understood(words: list[str]) -> click.Context:
    """Have the command line read a command as it would, up to the moment in which it would be carried out."""
    from arkqueue.cli import arkqueue

    context = arkqueue.make_context("arkqueue", list(words))
    while isinstance(context.command, click.Group):
        # click has no public name for the words that a group leaves to its command.
        rest = [*context._protected_args, *context.args]
        if not rest:
            break
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        # A command that is only mentioned by its name is not given what it needs.
        context = command.make_context(name, rest, parent=context, resilient_parsing=not rest)
    return context


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_that_a_page_shows_are_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hook.token").touch()
    wrong = []
    for words in commands(page):
        try:
            understood(words)
        except (click.ClickException, ImportError, AttributeError) as error:
            wrong.append(f"arkqueue {shlex.join(words)}: {getattr(error, 'message', error)}")

    assert wrong == []


def test_the_first_steps_are_all_looked_at() -> None:
    shown = [words[0] for words in commands(ROOT / "README.md")]

    assert {"serve", "archive", "hook", "check", "watch", "runs", "show", "logs", "explain", "graph"} <= set(shown)


@pytest.mark.parametrize(
    "text",
    ["srve", "archive ad papers /srv", "archive add papers", "serve --slot 3", "serve --slots many", "logs x --folow"],
)
def test_a_command_that_is_wrong_is_noticed(text: str) -> None:
    with pytest.raises(click.ClickException):
        understood(text.split())


# --- Configuration and words -----------------------------------------------------------------------------------------


def rows(page: Path, heading: str) -> list[list[str]]:
    """The first table below a heading, without its head."""
    text = re.split(rf"^#+ {re.escape(heading)}$", page.read_text("utf-8"), flags=re.MULTILINE)[1]
    lines = next(
        list(group) for is_row, group in groupby(text.splitlines(), lambda line: line.startswith("|")) if is_row
    )
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_every_key_of_the_configuration_is_described() -> None:
    described = [row[0].strip("`") for row in rows(CONFIGURATION, "Keys")]

    assert described == list(Configuration.model_fields)


def test_every_key_of_credentials_is_described() -> None:
    assert [row[0].strip("`") for row in rows(CONFIGURATION, "Passwords of repositories")] == list(
        Credentials.model_fields
    )


def test_every_key_of_containers_and_mounts_is_described() -> None:
    assert [row[0].strip("`") for row in rows(CONFIGURATION, "Containers")] == list(Docker.model_fields)
    assert [row[0].strip("`") for row in rows(CONFIGURATION, "Persistent mounts")] == list(PersistentMount.model_fields)


def test_defaults_of_containers_are_those_that_are_described(tmp_path: Path) -> None:
    described = {row[0].strip("`"): row[1] for row in rows(CONFIGURATION, "Containers")}
    file = tmp_path / "arkqueue.toml"
    given = [f"{key} = {default.strip('`')}\n" for key, default in described.items() if CODE_SPAN.fullmatch(default)]
    file.write_text("[docker]\n" + "".join(given), "utf-8")

    assert len(given) == 3
    assert Configuration.load(environ={}, file=file, home=tmp_path / "none").docker == Docker()
    assert [key for key in described if getattr(Docker(), key) is None] == [
        key for key, default in described.items() if default in ("none", "no limit")
    ]


def test_examples_of_the_configuration_have_no_faults(tmp_path: Path) -> None:
    examples = [
        text
        for page in FOR_ADMINISTRATORS
        for language, text in FENCE.findall(page.read_text("utf-8"))
        if language == "toml"
    ]

    assert len(examples) == 7
    for example in examples:
        (tmp_path / "arkqueue.toml").write_text(example, "utf-8")
        Configuration.load(environ={}, home=tmp_path)


def test_defaults_of_the_configuration_are_those_that_are_described(tmp_path: Path) -> None:
    described = [
        (row[0].strip("`"), row[1].strip("`")) for row in rows(CONFIGURATION, "Keys") if CODE_SPAN.fullmatch(row[1])
    ]
    file = tmp_path / "arkqueue.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in described), "utf-8")
    default = Configuration.load(environ={}, home=tmp_path / "none")

    assert len(described) > 8
    assert Configuration.load(environ={}, file=file, home=tmp_path / "none") == default


def test_variables_that_a_page_names_exist() -> None:
    known = {*variables(), PREFIX + "CONFIG", *compose_variables()}
    text = "".join(page.read_text("utf-8") for page in [*FOR_ADMINISTRATORS, ROOT / "README.md"])

    assert set(re.findall(r"\bARKQUEUE_[A-Z_]+\b", text)) - known - {"ARKQUEUE_OUTPUT", "ARKQUEUE_ATTACHMENTS"} == set()


def compose_variables() -> dict[str, str]:
    """What can be set for ``compose.yml``, with the defaults; where the default is empty, what arkqueue's own is."""
    return dict(re.findall(r"\$\{(\w+):-([^}]*)\}", (ROOT / "compose.yml").read_text("utf-8")))


def test_variables_of_the_compose_file_are_described_with_their_defaults() -> None:
    described: dict[str, str] = {}
    for row in rows(INSTALLATION, "With Docker Compose"):
        described |= dict(zip(*(re.findall(r"`([^`]+)`", cell) or [""] for cell in row[:2]), strict=True))
    assert described == compose_variables()


def test_variables_of_a_task_are_described() -> None:
    claim = SimpleNamespace(**dict.fromkeys(Claim._fields, ""))
    definition, workspace = TaskDefinition("index", changes=True), Workspace(AttemptId(1), Path())
    handed = Handed(PayloadKind.JSON, None)
    # The variables that the place of the workspace does not decide.
    given = ["CI", *environment._about(claim, definition, "papers", workspace, Path(), Path(), handed, Path())]  # type: ignore[arg-type]

    described = [name for row in rows(WORKFLOWS, "What a task gets") for name in CODE_SPAN.findall(row[0])]
    assert sorted(described) == sorted(given)


@pytest.mark.parametrize("heading", ["What people see", "The states of a task", "Inside"])
def test_words_stand_in_order(heading: str) -> None:
    words = [row[0] for row in rows(GLOSSARY, heading)]

    if heading == "The states of a task":
        assert words == [str(state) for state in State]
    else:
        assert words == sorted(words, key=str.lower)


def test_words_of_the_code_are_in_the_glossary() -> None:
    text = GLOSSARY.read_text("utf-8")

    assert [word for word in (*End, *Scope) if not re.search(rf"\b{re.escape(word)}\b", text)] == []


if __name__ == "__main__":
    ARCHITECTURE.write_text(redrawn(ARCHITECTURE.read_text("utf-8")), "utf-8")


def test_the_recording_of_the_demo_shows_a_run_to_its_end_and_fetches_nothing() -> None:
    picture = ROOT / "docs" / "demo.svg"
    assert "](docs/demo.svg)" in (ROOT / "README.md").read_text()
    assert picture.stat().st_size <= 300_000
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {"script", "image", "foreignObject", "a"}
    assert not re.search(r"@import|url\((?!#)", text)
    links = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
    assert all(link.startswith("#") for link in links), links
    words = " ".join(element.text or "" for element in root.iter())
    for shown in ("$ make demo", "superseded by", "Everything is in this folder"):
        assert shown in words
