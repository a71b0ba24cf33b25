"""Fields of the catalogue's objects: from values to JSON and back. The envelope is ``tierd.remote.CatalogueCodec``.

docs/formats.md has the layouts. What comes from the bucket is checked here: a field of another type, a negative offset
or a repeated partition is a RemoteIntegrityError that names the object and the field.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, cast
from uuid import UUID

from tierd.errors import RemoteIntegrityError
from tierd.model import TopicIdPartition, TopicPartition, uuid_from_text, uuid_to_text
from tierd.restore.catalogue.catalogue_objects import (
    CataloguedNode,
    CataloguedTopic,
    CommittedPosition,
    CoordinatedGroups,
    PartitionPositions,
    Positions,
)

A = TypeVar("A")

_INT64_MAX: Final = (1 << 63) - 1
_INT32_MAX: Final = (1 << 31) - 1
_REMEDY: Final = "restore the object from a version of it, or delete it: a running tierd writes newer ones"

Fields = Mapping[str, object]


def topic_fields(versions: Sequence[CataloguedTopic]) -> dict[str, object]:
    """Return the fields of a topic's object; ``versions`` are of one topic, the newest last."""
    newest = versions[-1]
    return {
        "topic": newest.name,
        "topic_id": uuid_to_text(newest.topic_id),
        "versions": [
            {
                "observed_ms": each.observed_ms,
                "from_cluster": each.is_from_cluster,
                "partition_count": each.partition_count,
                "replication_factor": each.replication_factor,
                "config": dict(each.config),
                "effective": dict(each.effective),
                "assignment": [[number, list(nodes)] for number, nodes in sorted(each.assignment.items())],
            }
            for each in versions
        ],
    }


def parse_topic(key: str, fields: Fields, *, topic: str, topic_id: UUID) -> tuple[CataloguedTopic, ...]:
    """Return the versions of a topic's object, the newest last; at least one.

    Raises:
        RemoteIntegrityError: the fields are no topic's, or another topic's.
    """
    return _checked(key, lambda: _topic_versions(fields, topic, topic_id))


def positions_fields(positions: Positions) -> dict[str, object]:
    """Return the fields of a positions object."""
    topics: dict[tuple[str, UUID], list[list[int]]] = {}
    for partition, offsets in sorted(positions.partitions.items(), key=lambda item: item[0].topic_partition):
        topics.setdefault((partition.topic, partition.topic_id), []).append(
            [
                partition.partition,
                offsets.log_start_offset,
                offsets.log_end_offset,
                offsets.high_watermark,
                offsets.leader_epoch,
            ]
        )
    return {
        "node_id": positions.node_id,
        "taken_ms": positions.taken_ms,
        "topics": [
            {"topic": topic, "topic_id": uuid_to_text(topic_id), "partitions": partitions}
            for (topic, topic_id), partitions in topics.items()
        ],
        "coordinated": [
            {
                "partition": number,
                "leader_epoch": each.leader_epoch,
                "groups": [
                    {"group": group, "commits": [_commit_row(*item) for item in sorted(commits.items())]}
                    for group, commits in sorted(each.groups.items())
                ],
            }
            for number, each in sorted(positions.coordinated.items())
        ],
    }


def parse_positions(key: str, fields: Fields, *, node_id: int, taken_ms: int) -> Positions:
    """Return the positions of an object.

    Raises:
        RemoteIntegrityError: the fields are no positions, or those of another node or moment.
    """
    return _checked(key, lambda: _positions(fields, node_id, taken_ms))


def node_fields(node: CataloguedNode) -> dict[str, object]:
    """Return the fields of a node's object; the snapshot is the object's secret."""
    return {
        "node_id": node.node_id,
        "observed_ms": node.observed_ms,
        "meta_properties": dict(node.meta_properties),
        "metadata_snapshot_name": node.metadata_snapshot_name,
        "metadata_log_dir": node.metadata_log_dir,
    }


def parse_node(key: str, fields: Fields, *, node_id: int, snapshot: bytes | None) -> CataloguedNode:
    """Return a node from the fields and the secret of its object.

    Raises:
        RemoteIntegrityError: the fields are no node's, or another node's.
    """
    return _checked(key, lambda: _node(fields, node_id, snapshot))


def _topic_versions(fields: Fields, topic: str, topic_id: UUID) -> tuple[CataloguedTopic, ...]:
    _require(fields.get("topic") == topic and fields.get("topic_id") == uuid_to_text(topic_id), "topic")
    versions = tuple(_topic_version(_object(each, "versions"), topic, topic_id) for each in _list(fields, "versions"))
    _require(bool(versions), "versions")
    return tuple(sorted(versions, key=lambda each: each.observed_ms))


def _topic_version(fields: Fields, topic: str, topic_id: UUID) -> CataloguedTopic:
    assignment: dict[int, tuple[int, ...]] = {}
    for row in _list(fields, "assignment"):
        number, nodes = _row(row, 2, "assignment")
        replicas = cast("list[object]", nodes) if isinstance(nodes, list) else [None]
        assignment[_number(number, "assignment", most=_INT32_MAX)] = tuple(
            _number(node, "assignment", most=_INT32_MAX) for node in replicas
        )
    is_from_cluster = fields.get("from_cluster")
    _require(isinstance(is_from_cluster, bool), "from_cluster")
    return CataloguedTopic(
        name=topic,
        topic_id=topic_id,
        partition_count=_number(fields.get("partition_count"), "partition_count", most=_INT32_MAX),
        replication_factor=_number(fields.get("replication_factor"), "replication_factor", most=_INT32_MAX),
        config=_settings(fields.get("config"), "config"),
        assignment=assignment,
        observed_ms=_number(fields.get("observed_ms"), "observed_ms"),
        is_from_cluster=bool(is_from_cluster),
        effective=_settings(fields.get("effective", {}), "effective"),
    )


def _settings(value: object, name: str) -> Mapping[str, str]:
    settings = _object(value, name)
    _require(all(isinstance(each, str) for each in settings.values()), name)
    return cast("Mapping[str, str]", settings)


def _positions(fields: Fields, node_id: int, taken_ms: int) -> Positions:
    _require(fields.get("node_id") == node_id and fields.get("taken_ms") == taken_ms, "node_id or taken_ms")
    partitions: dict[TopicIdPartition, PartitionPositions] = {}
    for each in _list(fields, "topics"):
        topic = _object(each, "topics")
        name, topic_id = _text(topic.get("topic"), "topic"), _uuid(topic.get("topic_id"), "topic_id")
        for row in _list(topic, "partitions"):
            number, start, end, watermark, epoch = _row(row, 5, "partitions")
            partition = TopicIdPartition(topic_id, name, _number(number, "partitions", most=_INT32_MAX))
            _require(partition not in partitions, "partitions")
            partitions[partition] = PartitionPositions(
                log_start_offset=_number(start, "partitions"),
                log_end_offset=_number(end, "partitions"),
                high_watermark=_number(watermark, "partitions"),
                leader_epoch=_number(epoch, "partitions", least=-1, most=_INT32_MAX),
            )
    coordinated: dict[int, CoordinatedGroups] = {}
    for each in _list(fields, "coordinated"):
        coordinator = _object(each, "coordinated")
        number = _number(coordinator.get("partition"), "coordinated", most=_INT32_MAX)
        _require(number not in coordinated, "coordinated")
        coordinated[number] = CoordinatedGroups(
            leader_epoch=_number(coordinator.get("leader_epoch"), "leader_epoch", least=-1, most=_INT32_MAX),
            groups=dict(_group(_object(group, "groups")) for group in _list(coordinator, "groups")),
        )
    return Positions(node_id=node_id, taken_ms=taken_ms, partitions=partitions, coordinated=coordinated)


def _group(fields: Fields) -> tuple[str, dict[TopicPartition, CommittedPosition]]:
    commits = dict(_commit(row) for row in _list(fields, "commits"))
    return _text(fields.get("group"), "group"), commits


def _commit_row(partition: TopicPartition, commit: CommittedPosition) -> list[object]:
    topic_id = None if commit.topic_id is None else uuid_to_text(commit.topic_id)
    row = [partition.topic, partition.partition, commit.offset, commit.leader_epoch, commit.committed_ms]
    return [*row, commit.metadata, topic_id]


def _commit(row: object) -> tuple[TopicPartition, CommittedPosition]:
    topic, number, offset, epoch, committed_ms, metadata, topic_id = _row(row, 7, "commits")
    return TopicPartition(_text(topic, "commits"), _number(number, "commits", most=_INT32_MAX)), CommittedPosition(
        offset=_number(offset, "commits"),
        leader_epoch=_number(epoch, "commits", least=-1, most=_INT32_MAX),
        metadata=_text(metadata, "commits"),
        committed_ms=_number(committed_ms, "commits", least=-1),
        topic_id=None if topic_id is None else _uuid(topic_id, "commits"),
    )


def _node(fields: Fields, node_id: int, snapshot: bytes | None) -> CataloguedNode:
    _require(fields.get("node_id") == node_id, "node_id")
    properties = _object(fields.get("meta_properties"), "meta_properties")
    _require(all(map(_is_property_file, properties.values())), "meta_properties")
    return CataloguedNode(
        node_id=node_id,
        meta_properties=cast("Mapping[str, str]", properties),
        metadata_snapshot=snapshot,
        metadata_snapshot_name=_text(fields.get("metadata_snapshot_name"), "metadata_snapshot_name"),
        observed_ms=_number(fields.get("observed_ms"), "observed_ms"),
        metadata_log_dir=_text(fields.get("metadata_log_dir", ""), "metadata_log_dir"),
    )


def _is_property_file(value: object) -> bool:
    """Return True for a text that a file of Java's properties can have: its characters are those of ISO 8859-1."""
    return isinstance(value, str) and all(character <= "\xff" for character in value)


class _FieldError(ValueError):
    """A field that has another form than tierd writes; the message is its name."""


def _checked(key: str, parse: Callable[[], A]) -> A:
    try:
        return parse()
    except _FieldError as error:
        raise RemoteIntegrityError(f"{key}: its field {error} is damaged", remedy=_REMEDY) from error


def _require(is_right: bool, name: str) -> None:
    if not is_right:
        raise _FieldError(name)


def _object(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _FieldError(name)
    return cast("dict[str, object]", value)


def _list(fields: Fields, name: str) -> list[object]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise _FieldError(name)
    return cast("list[object]", value)


def _row(value: object, size: int, name: str) -> list[object]:
    if not isinstance(value, list) or len(value) != size:
        raise _FieldError(name)
    return cast("list[object]", value)


def _number(value: object, name: str, *, least: int = 0, most: int = _INT64_MAX) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _FieldError(name)
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise _FieldError(name)
    return value


def _uuid(value: object, name: str) -> UUID:
    try:
        return uuid_from_text(_text(value, name))
    except ValueError as error:
        raise _FieldError(name) from error
