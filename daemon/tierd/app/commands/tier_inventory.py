"""Composition of ``tierd topics``: the inventory of the tier, from the metadata, and from the manifests on request."""

import asyncio
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

import structlog

from tierd.app.engine.host_metadata import HostMetadata
from tierd.app.engine.row_reader import row_reader
from tierd.errors import RemoteFormatError, RemoteIntegrityError, RemoteResourceNotFoundError, UnknownPartitionError
from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.tiering import ManifestFacts, PartitionInventory, partition_inventory

if TYPE_CHECKING:
    from tierd.app.engine.deployment import Deployment
    from tierd.remote import SegmentStorage

log = structlog.get_logger()

OnPartition = Callable[[int, int], None]
"""Callback after each partition: how many were read, and how many there are."""

_MANIFESTS_AT_ONCE: Final = 16


class _Rows(Protocol):
    async def partitions(self) -> list[TopicIdPartition]: ...

    async def view(self, partition: TopicIdPartition) -> PartitionView: ...


async def tier_inventory(
    host: HostMetadata, patterns: Iterable[str], *, on_partition: OnPartition
) -> list[PartitionInventory]:
    """Return the inventory of every partition whose topic matches a pattern, by topic and number.

    Args:
        host: the metadata.
        patterns: shell patterns of topic names; none stands for all topics.
        on_partition: progress.

    Raises:
        ConfigError: cluster or node are not known.
        UnknownPartitionError: a pattern matches no topic of the tier.
        TierError: the metadata store cannot be opened.
    """
    async with row_reader(host) as rows:
        return await _read(rows, list(patterns), None, on_partition)


async def recorded_inventory(
    deployment: "Deployment", patterns: Iterable[str], *, on_partition: OnPartition
) -> list[PartitionInventory]:
    """Return the inventory with the facts of the manifests, which takes one request to the object store a segment.

    A manifest that is gone, damaged or of another format is left out.

    Raises:
        ConfigError: cluster or node are not known.
        UnknownPartitionError: a pattern matches no topic of the tier.
        TierError: a store cannot be opened.
        RemoteStorageError: the object store does not answer, or refuses.
    """
    from tierd.app.engine.tier_reader import tier_reader  # noqa: PLC0415 - the object store, only where it is read

    async with tier_reader(deployment) as reader:
        return await _read(reader, list(patterns), reader.tier.segments, on_partition)


async def _read(
    rows: _Rows, patterns: list[str], storage: "SegmentStorage | None", on_partition: OnPartition
) -> list[PartitionInventory]:
    known = await rows.partitions()
    _require_matches(patterns, {each.topic for each in known})
    chosen = [each for each in known if not patterns or any(fnmatchcase(each.topic, one) for one in patterns)]
    found = []
    for partition in sorted(chosen, key=lambda each: (each.topic, each.partition, each.topic_id)):
        segments = (await rows.view(partition)).list()
        manifests = None if storage is None else await read_manifest_facts(storage, segments)
        found.append(partition_inventory(partition, segments, manifests))
        on_partition(len(found), len(chosen))
    return found


def _require_matches(patterns: Iterable[str], topics: set[str]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(topic, pattern) for topic in topics):
            raise UnknownPartitionError(
                f"no topic of the tier matches {pattern!r}", remedy="run tierd topics without a pattern for all topics"
            )


async def read_manifest_facts(
    storage: "SegmentStorage", segments: Iterable[RemoteLogSegmentMetadata]
) -> dict[UUID, ManifestFacts]:
    """Return the facts of finished segments, without those whose manifest is gone, damaged or of another format.

    Raises:
        ExceptionGroup: of RemoteStorageError: the object store does not answer, or refuses.
    """
    finished = [each for each in segments if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    found = dict[UUID, ManifestFacts]()
    for start in range(0, len(finished), _MANIFESTS_AT_ONCE):
        group = finished[start : start + _MANIFESTS_AT_ONCE]
        async with asyncio.TaskGroup() as tasks:
            facts = [tasks.create_task(_facts(storage, each)) for each in group]
        found |= {each.segment.id: known for each, task in zip(group, facts, strict=True) if (known := task.result())}
    return found


async def _facts(storage: "SegmentStorage", metadata: RemoteLogSegmentMetadata) -> ManifestFacts | None:
    try:
        manifest = await storage.read_manifest(metadata)
    except (RemoteResourceNotFoundError, RemoteIntegrityError, RemoteFormatError) as error:
        log.warning("manifest_not_read", segment=str(metadata.segment), problem=str(error))
        return None
    stored_bytes = manifest.log.size_bytes + sum(index.size_bytes for index in manifest.indexes.values())
    return ManifestFacts(record_count=manifest.record_count, stored_bytes=stored_bytes, log_bytes=manifest.size_bytes)
