"""The benchmark suite runs and tells what it found; how fast anything is, no test asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.__main__ import ROWS
from benchmarks.bench import Figure, at_most, faster, interleaved, ratio_at_least
from benchmarks.pages import pages_of
from tests.system.end_to_end.installation import ROOT, environment
from tests.system.pages.every_page import PAGES, route_of


@pytest.mark.full
def test_quick_pass_of_a_row_prints_figures_and_writes_them_down(tmp_path: Path) -> None:
    sizes = {"queue.archives": 3, "queue.revisions": 4, "queue.chain": 5}
    said = tmp_path / "bench.json"
    words = ["3", "--quick", "--rounds", "2", "--no-peers", "--json", str(said)]
    for name, number in sizes.items():
        words += ["--size", f"{name}={number}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    # 0 or 1 is for the machine to decide.
    assert done.returncode in (0, 1), done.stderr
    assert "links/s" in done.stdout
    assert "broke" not in done.stdout, done.stderr
    told = json.loads(said.read_text())
    assert told["broken"] == []
    assert told["sizes"].items() >= sizes.items()
    for figure in told["figures"]:
        assert figure["row"] == "3"
        assert len(figure["runs"]) == 2
        assert min(figure["runs"]) <= figure["median"] <= max(figure["runs"])
    missed = [t for f in told["figures"] for t in f["targets"] if t["met"] is False]
    assert done.returncode == bool(missed)
    assert ("Misses its target" in done.stdout) == bool(missed)


def test_every_row_of_the_suite_is_there() -> None:
    from benchmarks.__main__ import _function

    assert {str(row) for row in range(1, 20)} <= ROWS.keys()
    for place, _ in ROWS.values():
        assert callable(_function(place))


def test_every_page_of_the_router_is_timed() -> None:
    rows = [{"name": "past-7", "branch": "", "number": 9, "run": 9}]
    pages = pages_of(SimpleNamespace(sql=lambda *_: rows))  # type: ignore[arg-type]  an installation
    assert PAGES.keys() - {route_of(page.address) for page in pages if page.fields is None} == {"/-/archives/{name}"}
    assert {"/-/act", "/-/act/{act}"} <= {route_of(page.address, "POST") for page in pages if page.fields}


def test_figure_is_judged_by_its_median_and_by_the_median_ratio_of_its_pairs() -> None:
    targets = [at_most(3), at_most(1), ratio_at_least(0.5), faster(2)]
    figure = Figure("1", "it", "ms", [2, 9, 1], targets, "peer", [4, 10, 4])
    assert figure.median == 2
    assert figure.ratio == 0.5
    assert [met for _, met in figure.verdicts()] == [True, False, True, True]
    alone = Figure("1", "it", "ms", [2.0], [faster(2)])
    assert [met for _, met in alone.verdicts()] == [None]


def test_what_is_compared_takes_turns() -> None:
    order: list[str] = []

    def contestant(name: str) -> float:
        order.append(name)
        return len(order)

    found = interleaved(3, {"a": lambda: contestant("a"), "b": lambda: contestant("b")})
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert found == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_sizes_that_cannot_be_read_are_a_mistake_of_usage() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "3", "--size", "queue.chain"],
        cwd=ROOT, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--size" in done.stderr
