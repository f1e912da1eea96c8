"""Rows that are programs of their own, beside this file: they are run with their usual options, and what they print becomes figures with the targets that they name.

``containers`` needs an engine and an image with sh, head and yes: ARKQUEUE_BENCH_IMAGE. Neither is part of a pass that names no row.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.bench import Bench, Figure, at_least, at_most

_RATIO = re.compile(
    r"(?P<what>\S.*?)\s+(?P<median>[\d.]+)\s+\((?P<low>[\d.]+)-(?P<high>[\d.]+), .*to reach: (?P<sign>[<>])= (?P<bound>[\d.]+)\)\s*(?P<note>.*)"
)
"""A line of `containers`: the median ratio of pairs, its quartiles, its target."""
_TIME = re.compile(
    r"\s+(?P<what>\S.*?)\s+(?P<median>[\d.]+) ms\s+\((?P<low>[\d.]+) … (?P<high>[\d.]+), n=\d+\)(\s+(?P<ratio>[\d.]+)×)?"
)
"""A line of `workspaces`: the median time, the least and the greatest, and its ratio to the one beside it."""


def containers(bench: Bench) -> Iterator[Figure]:
    """The Docker executor beside the bare SDK."""
    image = os.environ.get("ARKQUEUE_BENCH_IMAGE")
    if not image:
        raise RuntimeError("which image? Set ARKQUEUE_BENCH_IMAGE to one with sh, head and yes.")
    pairs, megabytes = bench.size("containers.pairs", 30, 5), bench.size("containers.megabytes", 200, 20)
    for line in _lines(
        bench, "containers.py", "--image", image, "--pairs", pairs, "--rounds", bench.rounds, "--megabytes", megabytes
    ):
        if found := _RATIO.match(line):
            bound = float(found["bound"])
            target = at_most(bound, "×") if found["sign"] == "<" else at_least(bound, "×")
            runs = [float(found[name]) for name in ("low", "median", "high")]
            yield Figure("containers", found["what"], "× bare SDK", runs, [target], note=found["note"])


def workspaces(bench: Bench) -> Iterator[Figure]:
    """How long a workspace takes to be ready, beside svn and git themselves."""
    files, megabytes = bench.size("workspaces.files", 20_000, 500), bench.size("workspaces.megabytes", 1000, 10)
    kind = ""
    for line in _lines(
        bench, "workspaces.py", "--files", files, "--megabytes", megabytes, "--rounds", bench.rounds, "--folder", bench.folder
    ):  # fmt: skip
        if found := _TIME.match(line):
            runs = [float(found[name]) for name in ("low", "median", "high")]
            note = f"{found['ratio']}× the one beside it" if found["ratio"] else ""
            yield Figure("workspaces", f"{kind}: {found['what']}", "ms", runs, note=note)
        elif line[:1].strip():
            kind = line.partition(":")[0]


def _lines(bench: Bench, program: str, *options: object) -> Sequence[str]:
    bench.say(f"running {program}")
    here = Path(__file__)
    command = [sys.executable, str(here.with_name(program)), *map(str, options)]
    env = {**os.environ, "PYTHONPATH": str(here.parents[1])}
    done = subprocess.run(command, check=True, env=env, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()
