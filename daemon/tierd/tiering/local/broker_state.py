"""Offsets as the broker writes them: the two checkpoints in the root of a log dir, read only when they changed."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tierd.log import is_of_former_log, read_offset_checkpoint
from tierd.model import TopicPartition

HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"

_Signature = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class BrokerOffsets:
    """Offsets of one partition as the broker last wrote them down.

    Attributes:
        high_watermark: exclusive, a lower bound up to five seconds old; None until the broker wrote one.
        log_start_offset: listed only while it lies above the base of the first local segment.
        starts_written: another value whenever the broker wrote its log starts anew; None where they are never old.
        is_log_start_known: False while the checkpoint is older than the partition: its entry may be of a former topic
            of the same name. Then ``log_start_offset`` is None.
    """

    high_watermark: int | None
    log_start_offset: int | None
    starts_written: object = field(default=None, compare=False)
    is_log_start_known: bool = True


class _CheckpointPaths(NamedTuple):
    """Paths as text: joining them for each of many reads took longer than the reads."""

    high_watermarks: str
    log_starts: str


class BrokerCheckpoints:
    """Checkpoints of any number of log dirs. Reading them for two thousand partitions parses each file once."""

    def __init__(self) -> None:
        self._paths: dict[Path, _CheckpointPaths] = {}
        self._files: dict[str, tuple[_Signature, Mapping[TopicPartition, int]]] = {}
        self._reading: dict[str, asyncio.Lock] = {}

    async def offsets(self, log_dir: Path, partition: TopicPartition) -> BrokerOffsets:
        """Return the offsets of ``partition`` in the broker's checkpoints.

        Raises:
            CheckpointError: a checkpoint that cannot be understood; the broker rewrites it every few seconds.
        """
        paths = self._paths_of(log_dir)
        watermarks = await self._read(paths.high_watermarks)
        start = (await self._read(paths.log_starts)).get(partition)
        signature = self._files[paths.log_starts][0]
        is_known = start is None or signature is None or not is_of_former_log(signature[2], f"{log_dir}/{partition}")
        return BrokerOffsets(
            watermarks.get(partition), start if is_known else None, _written(signature), is_log_start_known=is_known
        )

    async def high_watermarks(self, log_dir: Path) -> Mapping[TopicPartition, int]:
        """Return the high watermark of every partition of ``log_dir`` that the broker wrote one for.

        Raises:
            CheckpointError: the checkpoint cannot be understood; the broker rewrites it every few seconds.
        """
        return await self._read(self._paths_of(log_dir).high_watermarks)

    def _paths_of(self, log_dir: Path) -> "_CheckpointPaths":
        if (known := self._paths.get(log_dir)) is None:
            high_watermarks, log_starts = log_dir / HIGH_WATERMARK_CHECKPOINT, log_dir / LOG_START_CHECKPOINT
            known = self._paths[log_dir] = _CheckpointPaths(str(high_watermarks), str(log_starts))
        return known

    async def _read(self, path: str) -> Mapping[TopicPartition, int]:
        # One stat on a directory that is in the kernel's cache: cheaper than a thread.
        signature = _signature(path)
        known = self._files.get(path)
        if known is not None and known[0] == signature:
            return known[1]
        async with self._reading.setdefault(path, asyncio.Lock()):  # after a start all of them ask at once
            signature, known = _signature(path), self._files.get(path)
            if known is None or known[0] != signature:
                known = (signature, await asyncio.to_thread(read_offset_checkpoint, Path(path)))
                self._files[path] = known
            return known[1]


def _written(signature: _Signature) -> object:
    return signature or "never"


def _signature(path: str) -> _Signature:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked for every partition
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
