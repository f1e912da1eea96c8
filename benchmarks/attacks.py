"""Row 15: a commit during an attack. Somebody pushes a revision that takes long to read
(``tests.attacks``), and another archive's commit must be processed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.bench import Bench, Figure, interleaved, ratio_at_most
from benchmarks.servers import Archive, a_server, until
from tests.attacks import ATTACKS, Attack
from tests.repositories import GitRepository, a_git_repository
from tests.system.end_to_end.installation import Installation, tasks


def _harmless(repository: GitRepository) -> None:
    repository.commit(tasks({"a": {"command": "true", "checkout": "none"}}))


PUSHES: dict[str, Attack] = {"something harmless": _harmless, **ATTACKS}


def attacks(bench: Bench) -> Iterator[Figure]:
    """From a notice right after the attacker's to the start of the first process, next to the same
    time on a server without an attack.
    """
    rounds = bench.size("attacks.commits", 7, 3)
    with ExitStack() as stack:
        server = stack.enter_context(a_server(bench, stack.enter_context(bench.database())))
        archive = Archive.add(bench, server, revisions=50)

        def attacked(attack: Attack) -> float:
            repository = a_git_repository(bench.a_folder("attack"))
            repository.commit({"paper": "harmless\n"})
            name = repository.path.parent.name
            server.api.post("/archives", {"name": name, "url": str(repository.path), "process": True})
            until(lambda: not _notices(server), "the first look at the attacker's archive")
            attack(repository)
            took = archive.latency(lambda: server.api.post(f"/archives/{name}/notices", {}))
            until(lambda: not _notices(server), "the end of the attack")
            return took

        contestants = {name: lambda attack=attack: attacked(attack) for name, attack in PUSHES.items()}
        found = interleaved(rounds, {"alone": archive.latency, **contestants}, warm=True)
    for name in PUSHES:
        what = f"notice → first process, beside a push of {name}"
        yield Figure(
            "15",
            what,
            "ms",
            found[name],
            [ratio_at_most(2)] if name in ATTACKS else [],
            "nobody pushes",
            found["alone"],
        )


def _notices(server: Installation) -> int:
    """The number of archives that are still to be read."""
    return int(server.sql("select count(*) from look")[0]["count"])
