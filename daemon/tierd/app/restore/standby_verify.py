"""``tierd verify --standby``: the log dirs of standbys against the tier. Reads only, and takes no lock."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.tier_reader import TierReader, reader_of_stores
from tierd.app.restore.catalogue_facts import CatalogueFacts
from tierd.app.restore.restore_source import SourceRequest
from tierd.app.restore.source_reader import source_stores
from tierd.app.restore.standby_directories import StandbyDirectories
from tierd.app.restore.topic_facts import topic_facts
from tierd.clock import SystemClock
from tierd.config import TopicsSettings
from tierd.errors import LogError, RemoteFormatError, RemoteIntegrityError, UnknownPartitionError
from tierd.log import PartitionDirectory, read_meta_properties
from tierd.metadata import copied_last_ms
from tierd.model import TopicIdPartition, TopicPartition, uuid_to_text
from tierd.restore import CatalogueStorage
from tierd.tiering import Finding, Severity, StandbyAudit

_ANEW = "delete the directory while its tierd is stopped: the leader sends the partition anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyVerifyRequest:
    """Comparison that is asked for.

    Attributes:
        log_dirs: of standbys.
        names: partitions; none means every partition of the tier and of the log dirs.
        deep: compare every batch.
        source: the tier, and where its metadata is.
    """

    log_dirs: tuple[Path, ...]
    names: tuple[TopicPartition, ...] = ()
    deep: bool = False
    source: SourceRequest


@contextlib.asynccontextmanager
async def verify_standbys(
    deployment: Deployment, request: StandbyVerifyRequest, *, on_progress: Callable[[str], None]
) -> AsyncIterator[AsyncIterator[Finding]]:
    """Open the tier; inside the context the findings and notes about the log dirs are iterated over.

    Args:
        deployment: the configuration.
        request: the log dirs and partitions.
        on_progress: is called with lines about the progress.

    Raises:
        LogDirOfflineError: a log dir is not there, or cannot be listed.
        UnknownPartitionError: neither the tier nor a log dir knows a name of the request.
        TierError: a store cannot be opened or read.
    """
    clock = SystemClock()
    directories = await asyncio.to_thread(StandbyDirectories.read, request.log_dirs)
    async with (
        source_stores(deployment, request.source, clock=clock, on_progress=on_progress) as source,
        reader_of_stores(deployment, source.identity, source.stores, log_dirs=(), clock=clock) as reader,
    ):
        catalogue = CatalogueStorage(source.stores.stored.objects, source.stores.stored.object_keys, source.stores.ring)
        verify = _StandbyVerify(
            request,
            reader,
            directories,
            catalogue=catalogue,
            topics=deployment.config.topics,
            is_pushed=deployment.config.push.wants,
        )
        async with contextlib.aclosing(verify.run(on_progress)) as findings:
            yield findings


_Copies = Mapping[TopicIdPartition, Sequence[PartitionDirectory]]


class _StandbyVerify:
    def __init__(
        self,
        request: StandbyVerifyRequest,
        reader: TierReader,
        directories: StandbyDirectories,
        *,
        catalogue: CatalogueStorage,
        topics: TopicsSettings,
        is_pushed: Callable[[str], bool],
    ) -> None:
        self._topics = topics
        self._is_pushed = is_pushed
        self._request = request
        self._reader = reader
        self._directories = directories
        self._catalogue = catalogue
        self._audit = StandbyAudit(view=reader.view, new_task=reader.fetches.task, clock=reader.clock)

    async def run(self, on_progress: Callable[[str], None]) -> AsyncGenerator[Finding, None]:
        foreign = await asyncio.to_thread(_foreign, self._request.log_dirs, self._reader.identity.cluster_id)
        for finding in (*foreign.values(), *self._unidentified(foreign)):
            yield finding
        copies = self._copies(foreign)
        wanted = await self._wanted(copies)
        facts = await self._catalogued({partition.topic_id for partition, _ in wanted})
        for number, (partition, newest) in enumerate(wanted, start=1):
            on_progress(f"{number} of {len(wanted)} partitions, now in {partition.topic_partition}")
            found = copies.get(partition, ())
            for finding in await self._of_partition(partition, newest, found, facts):
                yield finding

    def _unidentified(self, foreign: Collection[Path]) -> list[Finding]:
        what = "no partition.metadata: its topic id is not known, and no restore joins it"
        return [
            Finding(Severity.ERROR, "standby-damage", what, str(each.path), _ANEW)
            for each in self._directories.unidentified
            if self._is_named(each.topic_partition) and each.path.parent not in foreign
        ]

    def _copies(self, foreign: Collection[Path]) -> _Copies:
        found = self._directories.by_partition.items()
        kept = {partition: [each for each in copies if each.path.parent not in foreign] for partition, copies in found}
        return {partition: copies for partition, copies in kept.items() if copies}

    def _is_named(self, name: TopicPartition) -> bool:
        return not self._request.names or name in self._request.names

    async def _wanted(self, copies: _Copies) -> list[tuple[TopicIdPartition, TopicIdPartition | None]]:
        """Return the incarnations that have a copy, and those that should; each with the newest one of the tier.

        Raises:
            UnknownPartitionError: neither the tier nor a copy has a partition of a name.
        """
        incarnations: dict[TopicPartition, list[TopicIdPartition]] = {}
        for partition in await self._reader.partitions():
            incarnations.setdefault(partition.topic_partition, []).append(partition)
        named = {partition.topic_partition for partition in copies} | incarnations.keys()
        for name in self._request.names:
            if name not in named:
                raise UnknownPartitionError(
                    f"neither the tier nor a log dir of a standby knows {name}",
                    remedy="name it as Kafka names its directories, such as orders-0; without names all are compared",
                )
        wanted = []
        for name in sorted(filter(self._is_named, named)):
            newest = await self._newest(incarnations.get(name, ()))
            ours = {partition for partition in copies if partition.topic_partition == name}
            found = sorted(ours if newest is None else ours | {newest})
            wanted += [(partition, newest) for partition in found]
        return wanted

    async def _newest(self, incarnations: Sequence[TopicIdPartition]) -> TopicIdPartition | None:
        views = [await self._reader.view(each) for each in incarnations]
        return max(views, key=copied_last_ms).partition if views else None

    async def _of_partition(
        self,
        partition: TopicIdPartition,
        newest: TopicIdPartition | None,
        copies: Sequence[PartitionDirectory],
        facts: CatalogueFacts,
    ) -> list[Finding]:
        if not copies:
            return await self._missing(partition)
        found = [] if newest in (None, partition) else await self._other_topic(partition, newest, copies)
        is_compacted = topic_facts(
            self._topics.for_topic(partition.topic).cleanup_policy,
            facts.settings(partition.topic_id),
            retention_ms=None,
            is_cleaned=False,
        ).is_compacted
        return [*found, *await self._audit.run(partition, copies, is_compacted=is_compacted, deep=self._request.deep)]

    async def _missing(self, partition: TopicIdPartition) -> list[Finding]:
        """Return a finding for a partition without a copy. It is no fault where the configuration does not push it."""
        is_expected = bool(self._request.names) or self._is_pushed(partition.topic)
        exists, _ = copied_last_ms(await self._reader.view(partition))
        if not exists:
            return []
        severity = Severity.WARNING if is_expected else Severity.NOTE
        remedy = "tierd status on its leader says why it is not sent" if is_expected else "add its topic to push.topics"
        what = "the tier has it, and no log dir of a standby does"
        return [Finding(severity, "standby-missing", what, str(partition.topic_partition), remedy)]

    async def _other_topic(
        self, partition: TopicIdPartition, newest: TopicIdPartition, copies: Sequence[PartitionDirectory]
    ) -> list[Finding]:
        """Return a finding for copies of another incarnation than the newest of the tier; a note if they are newer."""
        _, copied_ms = copied_last_ms(await self._reader.view(newest))
        is_newer = await asyncio.to_thread(self._directories.written_ms, partition) > copied_ms
        ids = f"topic id {uuid_to_text(partition.topic_id)}, in the tier it is {uuid_to_text(newest.topic_id)}"
        what = f"{ids}: the topic was deleted and made again"
        severity = Severity.NOTE if is_newer else Severity.WARNING
        remedy = "nothing to do: nothing of the new topic is in the tier yet" if is_newer else _ANEW
        return [Finding(severity, "standby-other-topic", what, str(each.path), remedy) for each in copies]

    async def _catalogued(self, topic_ids: Collection[UUID]) -> CatalogueFacts:
        """Return the catalogue's newest version of the topics; what is damaged or of a later tierd is left out."""
        topics = {}
        for identity in await self._catalogue.list_topics():
            if identity.topic_id not in topic_ids:
                continue
            with contextlib.suppress(RemoteFormatError, RemoteIntegrityError):
                stored = await self._catalogue.read_topic(identity)
                if stored is not None and stored.versions:
                    topics[identity.topic_id] = stored.versions[-1]
        return CatalogueFacts(topics=topics)


def _foreign(log_dirs: Sequence[Path], cluster_id: str) -> dict[Path, Finding]:
    """Return a finding for each log dir that cannot be compared as a whole. Blocking."""
    found: dict[Path, Finding] = {}
    for log_dir in log_dirs:
        try:
            meta = read_meta_properties(log_dir)
        except LogError as error:
            found[log_dir] = Finding(Severity.ERROR, "standby-damage", str(error), str(log_dir), error.remedy)
            continue
        if meta is not None and meta.cluster_id != cluster_id:
            what = f"it is of cluster {meta.cluster_id}, the tier of {cluster_id}"
            remedy = "name the log dir of a standby of this cluster"
            found[log_dir] = Finding(Severity.ERROR, "standby-other-cluster", what, str(log_dir), remedy)
    return found
