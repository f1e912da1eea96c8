"""Buildbot's configuration: each change starts one build, whose single step writes the time into a
file. The master reads this file in its own folder.

Settings come from settings.json in the same folder: ``port``, ``workers_port``, ``database``,
``command``, ``builds``.
"""

from __future__ import annotations

import json
from pathlib import Path

from buildbot.plugins import schedulers, steps, util, worker

_chosen = json.loads((Path(basedir) / "settings.json").read_text())  # noqa: F821 (the master's folder, given by Buildbot)

BuildmasterConfig = {
    "workers": [worker.LocalWorker("worker", max_builds=_chosen["builds"])],
    "protocols": {"pb": {"port": f"tcp:{_chosen['workers_port']}:interface=127.0.0.1"}},
    "schedulers": [
        # Like arkqueue, Buildbot waits for no further changes, and builds each change separately.
        schedulers.SingleBranchScheduler(
            name="all", change_filter=util.ChangeFilter(branch=None), treeStableTimer=None, builderNames=["builder"]
        )
    ],
    "builders": [
        util.BuilderConfig(
            name="builder",
            workernames=["worker"],
            factory=util.BuildFactory([steps.ShellCommand(command=_chosen["command"])]),
            collapseRequests=False,
        )
    ],
    "www": {"port": f"tcp:{_chosen['port']}:interface=127.0.0.1", "change_hook_dialects": {"base": True}},
    "buildbotURL": f"http://127.0.0.1:{_chosen['port']}/",
    "title": "peer",
    "titleURL": f"http://127.0.0.1:{_chosen['port']}/",
    "db": {"db_url": _chosen["database"]},
    "buildbotNetUsageData": None,
}
