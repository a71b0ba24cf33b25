"""PlanTargets: the exclusive end of each partition that a restore asks for, as an offset or by a time."""

from dataclasses import dataclass
from typing import Final

from tierd.app.restore.catalogue_facts import CatalogueFacts
from tierd.app.restore.log_dir_plan import LogDirPlanRequest
from tierd.errors import TierError
from tierd.metadata import OwnBranch, PartitionView
from tierd.model import Lineage
from tierd.restore import PlanFinding, PlanSeverity
from tierd.tiering import FetchService, TieredLog

_NO_POSITIONS: Final = PlanFinding(
    PlanSeverity.REFUSED,
    "the catalogue has no positions of it at or before the time",
    "--by-timestamp goes by the times of the records; --topic or names of partitions leave it out",
)
_YOUNGER: Final = PlanFinding(
    PlanSeverity.LEFT_OUT,
    "it is younger than the time: the catalogue has positions of others at or before the time, and none of it, and its "
    "first record is not older",
    "nothing to do: at the time it had no records; name a later time to restore it",
)


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """Exclusive end of a partition that is asked for, None for the newest; or the objections to it."""

    offset: int | None
    findings: tuple[PlanFinding, ...] = ()


class PlanTargets:
    """Targets of the partitions of one request.

    Args:
        request: has the offset or the time.
        catalogue: its positions at the time, unless the times of the records decide.
        fetches: finds records by time in the tier; None for a request without a time, which looks for none.
    """

    def __init__(self, request: LogDirPlanRequest, catalogue: CatalogueFacts, fetches: FetchService | None) -> None:
        self._request = request
        self._catalogue = catalogue
        self._fetches = fetches

    async def find(self, view: PartitionView, lineage: Lineage) -> PlanTarget:
        """Return the target of a partition.

        Raises:
            TierError: the tier cannot be read.
        """
        request, catalogue, partition = self._request, self._catalogue, view.partition
        if request.to_time_ms is None:
            return PlanTarget(request.to_offset)
        newest = OwnBranch(view, lineage).end_offset
        if request.by_timestamp:
            return PlanTarget(await self._first_since(view, newest, time_ms=request.to_time_ms))
        position = catalogue.cut.partitions.get(partition) if catalogue.cut is not None else None
        if position is None:
            return PlanTarget(None, (_YOUNGER if await self._is_younger(view, request.to_time_ms) else _NO_POSITIONS,))
        if not catalogue.is_log_append_time(partition.topic_id):
            return PlanTarget(position.high_watermark)
        first = await self._first_since(view, newest, time_ms=request.to_time_ms)
        return PlanTarget(max(position.high_watermark, first))

    async def _is_younger(self, view: PartitionView, time_ms: int) -> bool:
        """Return True if a partition without positions at the time had no records then.

        The catalogue must have positions of other partitions at or before the time, and the first record of the tier
        that has a time must not be older. Otherwise the catalogue may just not have known the partition.
        """
        if self._catalogue.cut is None or not self._catalogue.cut.taken_ms:
            return False
        first = await self._found_since(view, 0)
        return first is not None and first == await self._found_since(view, time_ms)

    async def _first_since(self, view: PartitionView, newest: int, *, time_ms: int) -> int:
        """Return the first offset whose record is not older than the time; ``newest`` where all are older."""
        found = await self._found_since(view, time_ms)
        return newest if found is None else found

    async def _found_since(self, view: PartitionView, time_ms: int) -> int | None:
        """Return the first offset whose record is not older than the time; None where all are older."""

        async def snapshot() -> TieredLog:
            return TieredLog(view.partition, view, None, None)

        assert self._fetches is not None, "a request with a time has them"
        found = await self._fetches.list_offset(self._fetches.task(snapshot), time_ms)
        if isinstance(found, TierError):
            raise found
        return None if found is None else found.offset


def describe_time_rule(request: LogDirPlanRequest, catalogue: CatalogueFacts) -> str:
    """Return how a time is made into offsets, and how fine that is; empty without a time."""
    if request.to_time_ms is None:
        return ""
    if request.by_timestamp:
        return "by timestamp: each partition ends before its first record that is not older than the time"
    taken = {} if catalogue.cut is None else catalogue.cut.taken_ms
    ages = [f"broker {node}, {(request.to_time_ms - at) / 1000:.1f} s before" for node, at in sorted(taken.items())]
    if not ages:
        return "by the catalogue, which has no positions at or before the time"
    return f"by the positions of the catalogue: {'; '.join(ages)}"
