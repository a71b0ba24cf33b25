"""Files in the root of log dirs that a new disk of the node needs: ``meta.properties``, and the cluster metadata.

A KRaft node writes a snapshot of the cluster metadata now and then, beside the metadata log in one of its log dirs::

    __cluster_metadata-0/<20-digit end offset>-<10-digit epoch>.checkpoint

The snapshot is written under another name and renamed once it is whole.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log.files.directory import CLUSTER_METADATA
from tierd.log.files.meta_properties import META_PROPERTIES
from tierd.log.files.source import broker_file, read_whole
from tierd.log.log_errors import CheckpointError
from tierd.log.records.record_batch import iter_batches

_SNAPSHOT_NAME: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
_MAX_PROPERTIES_BYTES: Final = 1 << 20
_MAX_SNAPSHOT_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """Snapshot of the cluster metadata in a log dir. The names order snapshots by their end offset."""

    path: Path

    @property
    def name(self) -> str:
        """Return the file name, ``<end offset>-<epoch>.checkpoint``."""
        return self.path.name

    def read(self) -> bytes:
        """Return the content, of which every batch was checked. Blocking.

        Raises:
            SegmentChangedError: the node has removed it; a newer one is there.
            CorruptRecordError: it is damaged.
            CheckpointError: it is larger than any that is catalogued.
            LogDirOfflineError: it cannot be read.
        """
        content = read_whole(self.path, limit_bytes=_MAX_SNAPSHOT_BYTES, error=CheckpointError)
        end = 0
        for batch in iter_batches(content, name=str(self.path)):
            end = batch.end_position
        if end != len(content) or not content:
            raise CorruptRecordError(str(self.path), end, "the snapshot ends inside a batch")
        return content


def read_meta_properties_text(log_dir: Path) -> str | None:
    """Return the text of ``meta.properties`` of a log dir; None when there is none. Blocking.

    Raises:
        CheckpointError: it is larger than any such file.
        LogDirOfflineError: it cannot be read.
    """
    try:
        content = read_whole(log_dir / META_PROPERTIES, limit_bytes=_MAX_PROPERTIES_BYTES, error=CheckpointError)
    except SegmentChangedError:
        return None
    return content.decode("latin-1")  # the encoding of Java properties


def newest_metadata_snapshot(log_dirs: Iterable[Path]) -> MetadataSnapshot | None:
    """Return the newest snapshot of the cluster metadata in any of ``log_dirs``; None without one. Blocking.

    Raises:
        LogDirOfflineError: a directory cannot be listed.
    """
    found = [path for log_dir in log_dirs for path in _snapshots(log_dir / f"{CLUSTER_METADATA}-0")]
    return max(map(MetadataSnapshot, found), key=lambda each: each.name, default=None)


def _snapshots(directory: Path) -> list[Path]:
    try:
        with broker_file(directory):
            return [path for path in directory.iterdir() if _SNAPSHOT_NAME.fullmatch(path.name)]
    except SegmentChangedError:
        return []
