"""The status snapshot: the facts of every room at one moment."""

import os
from collections.abc import Mapping
from dataclasses import asdict

from pydantic import JsonValue

from tierd import __version__
from tierd.app.engine.compose import Engine
from tierd.serve import StatusSnapshot
from tierd.tiering import PartitionStatus, RemoteLogManager


def status_snapshot(
    engine: Engine,
    manager: RemoteLogManager,
    *,
    partitions: tuple[PartitionStatus, ...],
    started_ms: int,
    not_ready: tuple[str, ...],
    pipeline: Mapping[str, JsonValue],
    descriptors: Mapping[str, JsonValue],
) -> StatusSnapshot:
    """Return the facts of every room at this moment; blocks for no I/O."""
    held = engine.hold.statistics()
    metadata = engine.metadata.statistics()
    return StatusSnapshot(
        version=__version__,
        pid=os.getpid(),
        cluster_id=engine.identity.cluster_id,
        node_id=engine.identity.node_id,
        started_ms=started_ms,
        now_ms=engine.clock.now_ms(),
        not_ready=not_ready,
        partitions=partitions,
        hold={
            "segments": held.segments,
            "bytes": held.bytes,
            "descriptors": held.descriptors,
            "unheld_segments": held.unheld_segments,
            "unheld_reason": held.unheld_reason,
            "log_dirs": [
                {"path": str(each.log_dir), "mode": each.kind.value, "reason": each.reason} for each in held.log_dirs
            ],
        },
        metadata={name: value for name, value in asdict(metadata).items() if isinstance(value, int)},
        log_dirs=tuple(manager.log_dirs()),
        leadership=engine.control.facts(),
        pipeline=pipeline,
        own_logs=engine.logs.facts(),
        descriptors=descriptors,
        outages=engine.services.outages(),
    )
