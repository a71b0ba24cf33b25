"""Tiers of the golden log dirs, filled by the real copy in this process."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.fakes.log_dirs import LogDirWriter
from tests.golden.unpack import golden_cases
from tests.scenarios.installation import Installation
from tests.scenarios.log_dirs import copy_writable
from tests.scenarios.oracle import read_oracle
from tierd.app import Deployment, copy_once
from tierd.config import load_config
from tierd.log import iter_batches
from tierd.model import uuid_to_text

GOLDEN_LOG_DIRS = {
    case.logdirs[-1]: str(Path(case.oracle).parent)
    for case in golden_cases("clean", "epochs", "compact-before", "old-format", "crash")
} | {
    f"kafka-{version}/{stage}/logdir": f"kafka-{version}/{stage}/oracle"
    for version in ("3.9.2", "4.3.1")
    for stage in ("compact-pass1", "compact-pass2")
}
"""For each log dir the folder of its oracles."""


def copied_golden(source: Path, root: Path) -> tuple[Path, Installation]:
    """Copy a golden log dir to ``root/logdir``, and its segments to a tier; return both."""
    log_dir = root / "logdir"
    copy_writable(source, log_dir)
    if not (log_dir / "meta.properties").exists():
        _complete(log_dir)
    installation = Installation(root / "tierd", [log_dir])
    config_file = installation.config_file
    copied = asyncio.run(copy_once(Deployment(load_config(config_file, {}), config_file), None))
    failures = [outcome.error for outcome in copied if outcome.error is not None]
    assert not failures or "crash" in source.parts, failures  # partitions that a crash has damaged stay local
    return log_dir, installation


def golden_records(folder: Path, file: str, *, without: Sequence[str] = ()) -> list[Any]:
    """Return the records of an oracle, without some of their fields. Where there is no ``file``, all are committed."""
    path = folder / f"{file}.jsonl.gz"
    records = read_oracle(path if path.exists() else folder / "records.jsonl.gz")
    left_out = {"magic", *without}
    return [{name: r[name] for name in r if name not in left_out} for r in records if "offset" in r]


def _complete(log_dir: Path) -> None:
    """Add the files that a present broker makes beside the logs of old brokers."""
    writer = LogDirWriter(log_dir)
    ends = []
    for log in sorted(log_dir.rglob("*.log")):
        last = [batch.last_offset for batch in iter_batches(log.read_bytes(), name="log")][-1]
        (log.parent / f"{last + 1:020d}.log").touch()
        (log.parent / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(uuid4())}")
        (log.parent / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {int(log.stem)}\n")
        ends.append(f"{log.parent.name.rpartition('-')[0]} 0 {last + 1}\n")
    (writer.path / "replication-offset-checkpoint").write_text(f"0\n{len(ends)}\n{''.join(ends)}")
