"""OffsetCheckpoints: high watermarks and log starts of a log dir, as its broker writes them every few seconds."""

import threading
from pathlib import Path
from typing import NamedTuple

from tierd.errors import SegmentChangedError
from tierd.log import (
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    is_of_former_log,
    open_source,
    parse_offset_checkpoint,
)
from tierd.model import TopicPartition


class CheckpointedOffsets(NamedTuple):
    """Offsets of one partition; -1 where the broker has written none. Both are lower bounds.

    The broker writes names, so that the offsets may be those of a former topic with the same name: they count only for
    a log that is older than ``written_ns``.
    """

    high_watermark: int
    log_start_offset: int
    written_ns: int


class _OffsetFile:
    """One checkpoint. It is parsed again only if its bytes changed, because an idle broker writes the same ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = b""
        self._stamp: tuple[int, int, int] | None = None
        self.offsets: dict[TopicPartition, int] = {}
        self.written_ns = 0

    def is_changed(self) -> bool:
        try:
            with open_source(self._path) as source:
                stamp = (source.inode, source.size_bytes, source.mtime_ns)
                data = self._data if stamp == self._stamp else source.read(0, source.size_bytes)
        except SegmentChangedError:
            return False  # a broker that has not written it yet
        self._stamp, self.written_ns = stamp, stamp[2]
        if data == self._data:
            return False
        self.offsets = parse_offset_checkpoint(data, name=str(self._path))
        self._data = data
        return True


class OffsetCheckpoints:
    """The checkpoints of one log dir. Blocking, for any thread."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._watermarks = _OffsetFile(log_dir / REPLICATION_OFFSET_CHECKPOINT)
        self._starts = _OffsetFile(log_dir / LOG_START_OFFSET_CHECKPOINT)
        self._seen: dict[TopicPartition, tuple[int, int]] = {}
        self._doubted: set[TopicPartition] = set()
        self._lock = threading.Lock()

    def offsets(self, partition: TopicPartition) -> CheckpointedOffsets:
        """Return the offsets of a partition as they are written now.

        Raises:
            CheckpointError: a file cannot be understood.
            LogDirOfflineError: a file cannot be read.
        """
        with self._lock:
            self._refresh()
            return CheckpointedOffsets(*self._offsets(partition), self._watermarks.written_ns)

    def changes(self) -> dict[TopicPartition, CheckpointedOffsets]:
        """Return the offsets that changed since the last call, and those that were doubted.

        Raises:
            CheckpointError: a file cannot be understood.
            LogDirOfflineError: a file cannot be read.
        """
        with self._lock:
            if self._refresh():
                now = {partition: self._offsets(partition) for partition in self._watermarks.offsets}
                changed = {each: offsets for each, offsets in now.items() if self._seen.get(each) != offsets}
                self._seen = now
            else:
                changed = {}
            changed |= {partition: self._offsets(partition) for partition in self._doubted}
            self._doubted.clear()
            written_ns = self._watermarks.written_ns
        return {partition: CheckpointedOffsets(*offsets, written_ns) for partition, offsets in changed.items()}

    def doubt(self, partition: TopicPartition) -> None:
        """Give the offsets of a partition once more with the next changes: they may be those of a former topic."""
        with self._lock:
            self._doubted.add(partition)

    def _refresh(self) -> bool:
        are_changed = [each.is_changed() for each in (self._watermarks, self._starts)]
        return any(are_changed)

    def _offsets(self, partition: TopicPartition) -> tuple[int, int]:
        start = self._starts.offsets.get(partition, -1)
        if start >= 0 and is_of_former_log(self._starts.written_ns, f"{self._log_dir}/{partition}"):
            start = -1  # the log starts are written less often than the high watermarks
        return self._watermarks.offsets.get(partition, -1), start
