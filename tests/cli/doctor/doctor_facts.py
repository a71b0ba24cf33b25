"""Facts of a sound installation, for tests that change one of them."""

from pathlib import Path
from typing import Any

from tierd.cli.doctor.facts import (
    CheckFacts,
    ConfigFacts,
    DaemonFacts,
    DaemonLogFacts,
    Facts,
    FileFacts,
    HostFacts,
    ProcessFacts,
)
from tierd.serve import PartitionSummary, StatusAnswer

NOW_MS = 1_795_300_000_000  # 2026-11-21 22:26:40
CONFIG = Path("/etc/tierd/tierd.yaml")
STATE_DIR = Path("/var/lib/tierd")
KAFKA = 991

HOST = HostFacts(version="1.2.3", commit="a" * 40, uid=KAFKA, clock_synchronised=True, inotify_watches=100_000)
PROCESS = ProcessFacts(pid=7, state="S", uid=KAFKA, open_files_limit=65_536)
FILES = (FileFacts(CONFIG, "file", 0, 0o640), FileFacts(STATE_DIR, "directory", KAFKA, 0o700))
LOG = DaemonLogFacts(source="the journal of tierd")


def partition(name: str = "orders-0", **changes: Any) -> PartitionSummary:  # noqa: ANN401 - fields of any type
    """Return a partition that is idle, with ``changes``."""
    fields = {
        "partition": name,
        "directory": f"/data/{name}",
        "role": "leader",
        "leader_epoch": 1,
        "state": "idle",
        "reason": None,
        "last_error": None,
        "copied_through": 5,
        "high_watermark": 6,
        "lag_segments": 0,
        "lag_bytes": 0,
        "lag_seconds": 0.0,
    }
    return PartitionSummary.model_validate({**fields, **changes})


def status(*partitions: PartitionSummary, **changes: Any) -> StatusAnswer:  # noqa: ANN401 - as above
    """Return the status of a daemon that is ready, with ``changes``."""
    fields = {"version": "1.2.3", "commit": "a" * 40, "pid": 7, "not_ready": [], "ready": True}
    return StatusAnswer.model_validate({**fields, "partitions": partitions or (partition(),), **changes})


def facts(**changes: Any) -> Facts:  # noqa: ANN401 - as above
    """Return the facts of a sound installation, with ``changes``; ``status`` is the answer of its daemon."""
    answer = changes.pop("status", status())
    sound = {
        "now_ms": NOW_MS,
        "config_file": CONFIG,
        "state_dir": STATE_DIR,
        "check": CheckFacts(config=ConfigFacts()),
        "daemon": DaemonFacts(status=answer),
        "process": PROCESS,
        "files": FILES,
        "host": HOST,
        "log": LOG,
    }
    return Facts(**{**sound, **changes})
