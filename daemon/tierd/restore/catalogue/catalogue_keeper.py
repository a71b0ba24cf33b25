"""CatalogueKeeper: keeps the catalogue in the bucket in line with what this host sees (DESIGN 13).

::

    every interval:  log dirs ─► partitions ─► leaders, topics (brokers or configuration)
                       ├─► offsets of led partitions, new records of __consumer_offsets ─► positions/, if changed
                       ├─► topics/, those that changed
                       ├─► meta.properties, the newest snapshot of the cluster metadata ─► nodes/, if changed
                       └─► once an hour: superfluous positions go

A part that fails is logged, counted, shown in the status and tried again at the next interval; the others go on.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.config import CatalogueSettings
from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteObjectRetainedError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.log import MetadataSnapshot, newest_metadata_snapshot, read_meta_properties_text
from tierd.model import TopicIdPartition
from tierd.remote import CatalogueTopicKey
from tierd.restore.catalogue.catalogue_objects import CataloguedNode, CataloguedTopic, Positions
from tierd.restore.catalogue.catalogue_storage import CatalogueStorage
from tierd.restore.catalogue.groups_reader import GroupsReader
from tierd.restore.catalogue.local_partitions import OFFSETS_TOPIC, LocalPartition, LocalPartitions
from tierd.restore.catalogue.thinning import superfluous
from tierd.restore.catalogue.topic_sources import TopicSource, TopicSurvey, versions_with

log = structlog.get_logger()

_THINNING_EVERY_S: Final = 3600.0
_ATTEMPTS: Final = 5
_MAX_RETAINED: Final = 10  # objects that the store refuses to remove, in one thinning


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueStatistics:
    """Work of a keeper since the start.

    Attributes:
        written: objects that were stored, by kind: ``positions``, ``topics``, ``node``.
        removed: positions objects that thinning removed.
        failures: failed attempts, by part: the kinds, ``survey`` and ``thinning``.
        positions_ms: moment of the last positions that are in the bucket, or would be if anything had changed; None
            before the first.
        groups: groups in them.
        problems: what went wrong the last time, by part.
    """

    written: Mapping[str, int] = field(default_factory=dict)
    removed: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    positions_ms: int | None = None
    groups: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _NodeFiles:
    """Files of this node; two that are equal make the same object."""

    meta_properties: Mapping[str, str]
    snapshot: MetadataSnapshot | None


class CatalogueKeeper:
    """Writer of the catalogue for one broker."""

    def __init__(
        self,
        storage: CatalogueStorage,
        *,
        local: LocalPartitions,
        topics: TopicSource,
        node_id: int,
        clock: Clock,
        settings: CatalogueSettings,
    ) -> None:
        """Read and write nothing yet.

        Args:
            storage: the catalogue in the bucket.
            local: the log dirs.
            topics: tells what this broker leads, and what topics are like.
            node_id: of this broker.
            clock: time.
            settings: interval, and the age up to which positions stay.
        """
        self._storage = storage
        self._local = local
        self._topics = topics
        self._node_id = node_id
        self._clock = clock
        self._settings = settings
        self._groups = GroupsReader()
        self._last: Positions | None = None
        self._positions_ms: int | None = None
        self._known_topics: dict[UUID, CataloguedTopic] = {}
        self._pending_topics: dict[UUID, CataloguedTopic] = {}
        self._node_files: _NodeFiles | None = None
        self._thinned_s: float | None = None
        self._written: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._removed = 0
        self._problems: dict[str, str] = {}

    async def run(self) -> None:
        """Keep the catalogue until cancelled."""
        while True:
            await self.keep()
            await self._clock.sleep(self._settings.interval_s)

    async def keep(self) -> None:
        """Bring the catalogue up to date once. Nothing is raised for a part that fails."""
        await self._attempt("survey", self._keep_surveyed)
        await self._attempt("node", self._keep_node)
        if self._thinned_s is None or self._clock.monotonic_s() - self._thinned_s >= _THINNING_EVERY_S:
            await self._attempt("thinning", self._thin)

    def statistics(self) -> CatalogueStatistics:
        """Return the work since the start."""
        return CatalogueStatistics(
            written=dict(self._written),
            removed=self._removed,
            failures=dict(self._failures),
            positions_ms=self._positions_ms,
            groups=0 if self._last is None else sum(len(each.groups) for each in self._last.coordinated.values()),
            problems=dict(self._problems),
        )

    async def _attempt(self, part: str, work: Callable[[], Awaitable[str]]) -> None:
        """Do one part; ``work`` returns a problem that did not keep it from its end, empty without one."""
        try:
            problem, remedy = await work(), ""
        except TierError as error:
            self._failures[part] += 1
            problem, remedy = str(error), error.remedy
        if problem and self._problems.get(part) != problem:
            log.warning("catalogue_incomplete", part=part, problem=problem, remedy=remedy)
        if problem:
            self._problems[part] = problem
        else:
            self._problems.pop(part, None)

    # ------------------------------------------------------------ positions and topics

    async def _keep_surveyed(self) -> str:
        found = await asyncio.to_thread(self._local.find)
        survey = await self._topics.survey(found)
        await self._attempt("positions", lambda: self._keep_positions(found, survey))
        await self._attempt("topics", lambda: self._keep_topics(survey))
        return self._local.problem or survey.problem

    async def _keep_positions(self, found: Mapping[TopicIdPartition, LocalPartition], survey: TopicSurvey) -> str:
        coordinated = {each: epoch for each, epoch in survey.led.items() if each.topic == OFFSETS_TOPIC}
        data = {each: epoch for each, epoch in survey.led.items() if each.topic != OFFSETS_TOPIC}
        await self._read_groups(found, coordinated)
        partitions = await asyncio.to_thread(self._local.positions, found, data)
        now_ms = self._clock.now_ms()
        groups = await asyncio.to_thread(lambda: self._groups.coordinated(now_ms=now_ms))
        read = Positions(node_id=self._node_id, taken_ms=now_ms, partitions=partitions, coordinated=groups)
        positions = self._with_unread(read, found, data.keys())
        if not await asyncio.to_thread(_is_same, positions, self._last):
            await self._storage.write_positions(positions)
            self._written["positions"] += 1
            self._last = positions
        self._positions_ms = now_ms
        return self._groups.problem

    def _with_unread(
        self, read: Positions, found: Mapping[TopicIdPartition, LocalPartition], led: Collection[TopicIdPartition]
    ) -> Positions:
        """Return ``read`` with the last positions of what could not be read now, in a log dir or a damaged log.

        Leadership that has moved meanwhile has a higher epoch at another node.
        """
        if self._last is None:
            return read
        has_offline = bool(self._local.problem)
        here = {each.partition for each in found if each.topic == OFFSETS_TOPIC}
        partitions = {
            each: offsets
            for each, offsets in self._last.partitions.items()
            if each in led or (has_offline and each not in found)
        }
        groups = {
            number: each
            for number, each in self._last.coordinated.items()
            if number in self._groups.unread or (has_offline and number not in here)
        }
        return replace(read, partitions={**partitions, **read.partitions}, coordinated={**groups, **read.coordinated})

    async def _read_groups(
        self, found: Mapping[TopicIdPartition, LocalPartition], led: Mapping[TopicIdPartition, int]
    ) -> None:
        """Read what was appended to the led partitions of ``__consumer_offsets``, a few MiB at a time."""
        readable = {
            each.partition: (found[each], epoch)
            for each, epoch in led.items()
            if found[each].high_watermark is not None  # a broker writes it within seconds of its start
        }
        now_ms = self._clock.now_ms()
        self._groups.lead({number: epoch for number, (_, epoch) in readable.items()}, now_ms=now_ms)
        for number, (local, _) in readable.items():
            while await asyncio.to_thread(self._groups.read, number, local, now_ms=now_ms):
                pass

    async def _keep_topics(self, survey: TopicSurvey) -> str:
        self._pending_topics.update({each.topic_id: each for each in survey.topics})
        problem = ""
        for topic_id, topic in list(self._pending_topics.items()):
            known = self._known_topics.get(topic_id)
            if known is None or replace(topic, observed_ms=known.observed_ms) != known:
                problem = await self._keep_topic(topic) or problem
            self._known_topics[topic_id] = topic
            del self._pending_topics[topic_id]
        return problem

    async def _keep_topic(self, topic: CataloguedTopic) -> str:
        """Add ``topic`` to the versions in its object, and return what was wrong with the object.

        Raises:
            RemoteStorageError: the store failed, or other brokers wrote the object again and again.
        """
        key = CatalogueTopicKey(topic.name, topic.topic_id)
        for _ in range(_ATTEMPTS):
            stored = await self._storage.read_topic(key)
            versions = versions_with(stored.versions if stored else (), topic)
            if versions is None:
                return ""
            try:
                await self._storage.write_topic(versions, previous=stored.content if stored else None)
            except (RemoteConflictError, RemoteResourceNotFoundError):
                continue  # another broker wrote it meanwhile
            self._written["topics"] += 1
            return stored.damage if stored else ""
        raise RetriableRemoteStorageError(
            f"the catalogued topic {topic.name} changed {_ATTEMPTS} times while it was written",
            remedy="it is tried again",
        )

    # ------------------------------------------------------------ the node, thinning

    async def _keep_node(self) -> str:
        files = await asyncio.to_thread(_node_files, self._local.log_dirs)
        if files == self._node_files:
            return ""
        snapshot = None if files.snapshot is None else await asyncio.to_thread(files.snapshot.read)
        seen = CataloguedNode(
            node_id=self._node_id,
            meta_properties=files.meta_properties,
            metadata_snapshot=snapshot,
            metadata_snapshot_name=files.snapshot.name if files.snapshot else "",
            observed_ms=self._clock.now_ms(),
            metadata_log_dir=str(files.snapshot.path.parent.parent) if files.snapshot else "",
        )
        problem = ""
        try:
            stored = await self._storage.read_node(self._node_id)
        except (RemoteIntegrityError, RemoteKeyMissingError) as error:
            if seen.metadata_snapshot is None and isinstance(error, RemoteKeyMissingError):
                raise  # another key ring may still open the snapshot in the object
            stored, problem = None, str(error)
        node = seen if stored is None else node_with(stored, seen)
        if stored is None or replace(node, observed_ms=stored.observed_ms) != stored:
            await self._storage.write_node(node)
            self._written["node"] += 1
        if node.metadata_snapshot_name > seen.metadata_snapshot_name > "":
            return (
                f"the cluster metadata in {seen.metadata_log_dir} is older than the snapshot in the catalogue, which "
                f"stays; if the cluster was made anew, delete nodes/{self._node_id}.json of the catalogue"
            )
        self._node_files = files
        return problem

    async def _thin(self) -> str:
        found = await self._storage.list_positions()
        keep_ms = round(self._settings.keep_s * 1000)
        gone = superfluous(found, now_ms=self._clock.now_ms(), keep_ms=keep_ms, node_id=self._node_id)
        retained = 0
        for each in gone:
            try:
                await self._storage.remove_positions(each)
            except RemoteObjectRetainedError as error:
                retained += 1
                if retained == _MAX_RETAINED:  # younger objects are retained longer
                    log.info("catalogue_positions_retained", problem=str(error))
                    break
            else:
                self._removed += 1
        self._thinned_s = self._clock.monotonic_s()
        return ""


def _is_same(positions: Positions, last: Positions | None) -> bool:
    """Return True if nothing but the time has changed since ``last``."""
    return last is not None and replace(positions, taken_ms=last.taken_ms) == last


def node_with(stored: CataloguedNode, seen: CataloguedNode) -> CataloguedNode:
    """Return the object of a node that was ``stored`` with what was ``seen`` in the log dirs now.

    A disk that was wiped takes nothing from the catalogue: the identity of a log dir stays until the log dir has
    another one, and a snapshot of the cluster metadata until a newer one is there.
    """
    node = replace(seen, meta_properties={**stored.meta_properties, **seen.meta_properties})
    if stored.metadata_snapshot_name <= seen.metadata_snapshot_name:
        return node
    return replace(
        node,
        metadata_snapshot=stored.metadata_snapshot,
        metadata_snapshot_name=stored.metadata_snapshot_name,
        metadata_log_dir=stored.metadata_log_dir,
    )


def _node_files(log_dirs: tuple[Path, ...]) -> _NodeFiles:
    texts = {str(log_dir): read_meta_properties_text(log_dir) for log_dir in log_dirs}
    return _NodeFiles(
        {log_dir: text for log_dir, text in texts.items() if text is not None}, newest_metadata_snapshot(log_dirs)
    )
