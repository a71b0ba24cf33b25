"""CheckpointMeta: facts beside an offset of ``.checkpoint`` that tell if the offset still means the same record.

They are in the side file ``.checkpoint.meta`` (changelog-restore 3.6), one JSON object::

    {"version":1,"changelogs":{"orders-changelog-0":{
        "offset":1500,                            last applied; -1: a restore from the beginning has begun
        "semantics":"last_applied",               of the entry in .checkpoint
        "topic_id":"22 characters" or null,
        "leader_epoch":3,                         of the record at "offset"; -1: not known
        "epochs":[[1,0],[3,1200]],                leader epochs of the changelog and their first offsets, as known …
        "known_end_offset":1800,                  … below this offset
        "read_since_ms":1700000000000,            wall clock
        "store_id":"…" or null}}}

Kafka Streams does not know the side file. An entry whose offset differs from that of ``.checkpoint`` is older than it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from uuid import UUID

from tierd.json_parsing import parse_json
from tierd.log import Disk, read_file, replace_file, unlink_if_there
from tierd.model import Lineage, TopicPartition, uuid_from_text, uuid_to_text
from tierd.restore.changelog.changelog_errors import CheckpointFault, CheckpointFileError
from tierd.restore.changelog.checkpoints.checkpoint_file import OffsetSemantics, disk_fault

_VERSION: Final = 1
_REMEDY: Final = "remove it and the checkpoint file beside it; the stores are then restored from the beginning"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMeta:
    """Facts about the changelog and the store at the moment when an offset was written.

    Attributes:
        offset: last applied; -1 for a restore from the beginning that has begun. A transactional store may be ahead.
        semantics: meaning of the entry in ``.checkpoint``.
        leader_epoch: epoch of the record at ``offset``; -1 where it is not known.
        lineage: leader epochs of the changelog below ``known_end_offset``; empty where they are not known.
        read_since_ms: wall clock at which the changelog was last read to its end, or its reading began. Tombstones
            that the log has lost since ``delete.retention.ms`` after that may be missing.
        store_id: id of the store's files; None where the store has none.
    """

    offset: int
    semantics: OffsetSemantics
    topic_id: UUID | None
    leader_epoch: int
    read_since_ms: int
    store_id: str | None
    lineage: Lineage = field(default_factory=Lineage)
    known_end_offset: int = 0

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the facts of one entry of the side file.

        Raises:
            ValueError: a field is missing or of the wrong kind.
        """
        match value:
            case {
                "offset": int(offset),
                "semantics": str(semantics),
                "topic_id": str() | None as topic_id,
                "leader_epoch": int(leader_epoch),
                "epochs": list(epochs),
                "known_end_offset": int(known_end_offset),
                "read_since_ms": int(read_since_ms),
                "store_id": str() | None as store_id,
            }:
                return cls(
                    offset=offset,
                    semantics=OffsetSemantics(semantics),
                    topic_id=None if topic_id is None else uuid_from_text(topic_id),
                    leader_epoch=leader_epoch,
                    read_since_ms=read_since_ms,
                    store_id=store_id,
                    lineage=_lineage(epochs),
                    known_end_offset=known_end_offset,
                )
            case _:
                raise ValueError("an entry lacks a field, or has one of the wrong kind")

    def encode(self) -> dict[str, object]:
        """Return the JSON object of the entry."""
        return {
            "offset": self.offset,
            "semantics": self.semantics.value,
            "topic_id": None if self.topic_id is None else uuid_to_text(self.topic_id),
            "leader_epoch": self.leader_epoch,
            "epochs": [list(entry) for entry in self.lineage.entries],
            "known_end_offset": self.known_end_offset,
            "read_since_ms": self.read_since_ms,
            "store_id": self.store_id,
        }


def read_checkpoint_metas(disk: Disk, path: Path) -> dict[TopicPartition, CheckpointMeta]:
    """Return the entries of a side file; empty if the file is missing. Blocking.

    Raises:
        CheckpointFileError: the content is damaged or of another version, or the file cannot be read.
    """
    try:
        return _parse(parse_json(read_file(disk, path)))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise disk_fault(path, error) from error
    except ValueError as error:
        raise CheckpointFileError(path, CheckpointFault.FORMAT, str(error), remedy=_REMEDY) from error


def write_checkpoint_metas(disk: Disk, path: Path, metas: Mapping[TopicPartition, CheckpointMeta]) -> None:
    """Replace a side file, durably; without entries, remove it. Blocking.

    Raises:
        CheckpointFileError: the disk is full or failing; the old content is as it was.
    """
    changelogs = {str(partition): meta.encode() for partition, meta in sorted(metas.items())}
    content = json.dumps({"version": _VERSION, "changelogs": changelogs}, separators=(",", ":"))
    try:
        if metas:
            replace_file(disk, path, content.encode() + b"\n")
        elif unlink_if_there(disk, path):
            disk.sync_directory(path.parent)
    except OSError as error:
        raise disk_fault(path, error) from error


def _parse(content: object) -> dict[TopicPartition, CheckpointMeta]:
    match content:
        case {"version": version, "changelogs": dict(changelogs)} if version == _VERSION:
            return {TopicPartition.parse(name): CheckpointMeta.parse(value) for name, value in changelogs.items()}
        case _:
            raise ValueError(f"it is not a side file of version {_VERSION}")


def _lineage(epochs: list[object]) -> Lineage:
    entries: list[tuple[int, int]] = []
    for entry in epochs:
        match entry:
            case [int(epoch), int(start_offset)]:
                entries.append((epoch, start_offset))
            case _:
                raise ValueError("a leader epoch has no first offset")
    return Lineage.of(entries)
