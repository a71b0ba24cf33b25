"""StandbyMemory: the file of what a standby has to know after a restart, before any leader answers.

::

    {"format": 1,
     "replicas": [{"topic", "topic_id", "partition", "leader", "leader_epoch", "synced_at_ms"}, …],
     "topics": {"orders": {"cleanup.policy": "compact"}, …},
     "retired": ["<topic id>", …]}

The leader epochs keep a standby from following an older leader after a restart. The settings keep retention and
cleaning from treating a topic as another kind of topic. ``synced_at_ms`` is the wall-clock time at which a replica last
had every record of its leader. The format is tierd's own; a file that cannot be read counts as none, with a warning.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from uuid import UUID

import structlog

from tierd.errors import StateDirError
from tierd.files import open_to_read, replace_privately
from tierd.json_parsing import parse_json
from tierd.model import TopicIdPartition, TopicPartition, is_topic_name
from tierd.replication.follower.rules.assignment_book import KeptReplica
from tierd.replication.follower.rules.followed_partition import LeaderClaim

FILE_NAME: Final = "push-standby.json"
_MAX_BYTES: Final = 256 << 20
_MAX_VALUES: Final = 20_000_000
_FORMAT: Final = 1
_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyMemory:
    """Content of the file.

    Attributes:
        replicas: the partitions that the standby keeps.
        synced_at_ms: by partition; a partition without an entry may be out of date by any time.
        topics: the settings of each topic, under Kafka's names.
        retired: ids of deleted topics, oldest first.
    """

    replicas: tuple[KeptReplica, ...] = ()
    synced_at_ms: dict[TopicPartition, int] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    retired: tuple[UUID, ...] = ()

    @classmethod
    def load(cls, state_dir: Path) -> Self:
        """Read the file; blocking. Without a readable file nothing is known."""
        path = state_dir / FILE_NAME
        try:
            with open_to_read(path) as file:
                return cls.decode(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError) as error:
            remedy = "leaders name their partitions again; compacted copies are built again from their leaders"
            _LOG.warning("standby_memory_not_read", path=str(path), error=str(error), remedy=remedy)
            return cls()

    def save(self, state_dir: Path) -> None:
        """Replace the file, durably; blocking.

        Raises:
            StateDirError: the disk is full or failing; the former file is still there.
        """
        path = state_dir / FILE_NAME
        try:
            replace_privately(path, self.encode())
        except OSError as error:
            raise StateDirError(
                f"{path} cannot be written: {error.strerror or error}", remedy="check state_dir and its disk"
            ) from error

    def encode(self) -> bytes:
        """Return the content of the file."""
        replicas = [self._encode_replica(each) for each in self.replicas]
        retired = [str(each) for each in self.retired]
        content = {"format": _FORMAT, "replicas": replicas, "topics": self.topics, "retired": retired}
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Parse the content of the file.

        Raises:
            ValueError: it is not such a content.
        """
        parsed = _object(parse_json(content, max_values=_MAX_VALUES))
        if parsed.get("format") != _FORMAT:
            raise ValueError(f"format {parsed.get('format')!r} is not {_FORMAT}")
        fields = [_object(each) for each in _array(parsed.get("replicas"))]
        replicas = tuple(map(_replica_of, fields))
        synced = {
            replica.partition.topic_partition: _whole(each["synced_at_ms"])
            for replica, each in zip(replicas, fields, strict=True)
            if "synced_at_ms" in each
        }
        topics = {
            topic: {name: _text(value) for name, value in _object(config).items()}
            for topic, config in _object(parsed.get("topics")).items()
        }
        retired = tuple(UUID(_text(each)) for each in _array(parsed.get("retired")))
        return cls(replicas=replicas, synced_at_ms=synced, topics=topics, retired=retired)

    def _encode_replica(self, kept: KeptReplica) -> dict[str, object]:
        partition = kept.partition
        fields: dict[str, object] = {
            "topic": partition.topic,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            "leader": kept.leader.node_id,
            "leader_epoch": kept.leader.leader_epoch,
        }
        synced_at_ms = self.synced_at_ms.get(partition.topic_partition)
        return fields if synced_at_ms is None else {**fields, "synced_at_ms": synced_at_ms}


def _replica_of(fields: dict[str, object]) -> KeptReplica:
    topic = _text(fields.get("topic"))
    if not is_topic_name(topic):
        raise ValueError(f"{topic!r} is no name of a topic")
    partition = TopicIdPartition(UUID(_text(fields.get("topic_id"))), topic, _whole(fields.get("partition")))
    return KeptReplica(partition, LeaderClaim(_whole(fields.get("leader")), _whole(fields.get("leader_epoch"))))


def _object(value: object) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{value!r:.50} is no object")


def _array(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise ValueError(f"{value!r:.50} is no array")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r:.50} is no text")


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r:.50} is no whole number")
    return value
