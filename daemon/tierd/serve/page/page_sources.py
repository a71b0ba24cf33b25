"""Sources of the pages: functions that the process hands in. All of them answer from memory, or within a deadline."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tierd.cost import CostReport
from tierd.model import RemoteLogSegmentMetadata, TopicPartition
from tierd.pipeline import RunReport
from tierd.restore import DrilledPartition
from tierd.serve.page.log_layout import PartitionLayout
from tierd.serve.page.rate_series import RateSeries
from tierd.serve.status_snapshot import StatusSnapshot
from tierd.tiering import LedgerEntry, ManifestFacts, PartitionInventory


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInventory:
    """Contents of the tier that this daemon answers for.

    Attributes:
        partitions: led here, and loaded.
        elsewhere: the other partitions of this host, each with the reason why its contents are not known here.
    """

    partitions: tuple[PartitionInventory, ...] = ()
    elsewhere: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastWork:
    """Work of the past, as the state directory has it.

    Attributes:
        runs: of the pipeline, the newest first.
        drills: of partitions, the newest first.
        deletions: lines of the ledger, the newest first, a bounded number.
        cost: of this broker; None while it is being computed.
        problems: files that could not be read, each with the reason.
    """

    runs: tuple[RunReport, ...] = ()
    drills: tuple[DrilledPartition, ...] = ()
    deletions: tuple[LedgerEntry, ...] = ()
    cost: CostReport | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSources:
    """Sources of the pages that only a daemon beside a broker has.

    Attributes:
        inventory: returns the contents of the tier by partition.
        partition: returns the facts of one partition; None for one that this host does not know.
        manifests: returns the facts of the manifests of these segments, and why not of all; empty text for all.
        past: returns past work; the argument is a partition whose deletions are wanted, None for all.
        rates: the series of the last day.
    """

    inventory: Callable[[], Awaitable[HostInventory]]
    partition: Callable[[TopicPartition], Awaitable[PartitionLayout | None]]
    manifests: Callable[[Sequence[RemoteLogSegmentMetadata]], Awaitable[tuple[Mapping[UUID, ManifestFacts], str]]]
    past: Callable[[TopicPartition | None], Awaitable[PastWork]]
    rates: RateSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSources:
    """Sources of all pages: the status of this moment, and, in a daemon, the tier.

    Attributes:
        whose: cluster and node, for the head of each page.
        deadline_s: longest time for one page; longer than all deadlines of the sources together.
    """

    status: Callable[[], Awaitable[StatusSnapshot]]
    tier: TierSources | None = None
    whose: str = ""
    deadline_s: float = 12.0
