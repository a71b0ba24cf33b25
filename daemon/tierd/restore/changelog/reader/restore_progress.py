"""ProgressReporter: progress of restores for the log, for metrics and for a caller (changelog-restore 3.10)."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.model import TopicPartition
from tierd.restore.changelog.reader.restored_changelog import ChangelogState, RestoredChangelog
from tierd.restore.changelog.reader.start_decision import WipeReason
from tierd.telemetry import ChangelogRestoreUse, StoreRestoreUse

LOG_INTERVAL_S: Final = 10.0
CALL_INTERVAL_S: Final = 0.25
MOST_LOGGED: Final = 20
_RATE_SPAN_S: Final = 30.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogProgress:
    """State of one changelog's restore.

    Attributes:
        next_offset: next offset to read.
        end_offset: exclusive; for a standby the log end as last seen.
        records: applied since the start.
        size_bytes: log bytes read since the start; ``remote_bytes`` of them came from the tier.
        records_per_s: average of about the last 30 seconds.
        eta_s: seconds until the end at this rate; None where the rate is 0.
    """

    partition: TopicPartition
    store: str
    state: ChangelogState
    is_active: bool
    starting_offset: int
    next_offset: int
    end_offset: int
    remaining: int
    records: int
    size_bytes: int
    remote_bytes: int
    records_per_s: float
    eta_s: float | None


@dataclass(slots=True)
class RestoreRate:
    """Records per second, as an average in which a second weighs less the longer ago it is."""

    started_s: float
    _at_s: float = field(init=False)
    _weighted: float = 0.0

    def __post_init__(self) -> None:
        self._at_s = self.started_s

    def add(self, count: int, now_s: float) -> None:
        """Count records that were applied at ``now_s``."""
        self._weighted = self._weighted * math.exp((self._at_s - now_s) / _RATE_SPAN_S) + count / _RATE_SPAN_S
        self._at_s = now_s

    def per_second(self, now_s: float) -> float:
        """Return the average; the time before the start does not count."""
        weight = 1 - math.exp((self.started_s - now_s) / _RATE_SPAN_S)
        return self._weighted * math.exp((self._at_s - now_s) / _RATE_SPAN_S) / weight if weight else 0.0


class ProgressReporter:
    """Counts of one reader since its start. Methods do no I/O but to the log."""

    def __init__(
        self, *, clock: Clock, on_progress: Callable[[Sequence[ChangelogProgress]], None] | None = None
    ) -> None:
        self._clock = clock
        self._on_progress = on_progress
        self._last_report_s = clock.monotonic_s()
        self._called_s = -math.inf
        self._rates: dict[TopicPartition, RestoreRate] = {}
        self._records = 0
        self._bytes: Counter[str] = Counter()
        self._wipes: Counter[str] = Counter({reason.value: 0 for reason in WipeReason})
        self._failures = 0
        self._checkpoints = 0
        self._checkpoint_s = 0.0
        self._changelogs: Callable[[], Iterable[RestoredChangelog]] = tuple

    def watch(self, changelogs: Callable[[], Iterable[RestoredChangelog]]) -> None:
        """Ask ``changelogs`` for the changelogs of the reader at every report."""
        self._changelogs = changelogs

    def started(self, changelog: RestoredChangelog) -> None:
        """Begin to measure the rate of a changelog."""
        self._rates[changelog.partition] = RestoreRate(self._clock.monotonic_s())

    def forget(self, partition: TopicPartition) -> None:
        """Drop what is kept for a changelog that is no longer registered."""
        self._rates.pop(partition, None)

    def read(self, *, size_bytes: int, remote_bytes: int) -> None:
        """Count the log bytes of a read."""
        self._bytes["remote"] += remote_bytes
        self._bytes["local"] += size_bytes - remote_bytes

    def applied(self, changelog: RestoredChangelog, count: int) -> None:
        """Count records that a store took."""
        self._records += count
        self._rates[changelog.partition].add(count, self._clock.monotonic_s())

    def wiped(self, reason: WipeReason) -> None:
        """Count a wipe."""
        self._wipes[reason.value] += 1

    def failed(self) -> None:
        """Count a changelog whose restore was abandoned."""
        self._failures += 1

    def checkpoint_written(self, seconds: float) -> None:
        """Record the time of a checkpoint, with the flush of the stores."""
        self._checkpoints += 1
        self._checkpoint_s += seconds

    def reset_timer(self) -> None:
        """Let the next lines of the log wait a whole interval."""
        self._last_report_s = self._clock.monotonic_s()

    def report(self) -> None:
        """Call the caller's callback and write the log lines, each if its interval is over.

        One line for each of the ``MOST_LOGGED`` changelogs that have most left.
        """
        now_s = self._clock.monotonic_s()
        if self._on_progress is not None and now_s - self._called_s >= CALL_INTERVAL_S:
            self._called_s = now_s
            self._on_progress(self.progress())
        if now_s - self._last_report_s >= LOG_INTERVAL_S:
            self._last_report_s = now_s
            self._log()

    def _log(self) -> None:
        progress = self.progress()
        unfinished = [each for each in progress if each.state is ChangelogState.RESTORING and each.is_active]
        if not unfinished:
            return
        total = sum(each.remaining for each in unfinished)
        log.info("stores_restoring", changelogs=len(unfinished), remaining=total)
        for each in unfinished[:MOST_LOGGED]:
            log.info(
                "store_restoring",
                partition=str(each.partition),
                store=each.store,
                next_offset=each.next_offset,
                end_offset=each.end_offset,
                records=each.records,
                records_per_s=round(each.records_per_s, 1),
                eta_s=None if each.eta_s is None else round(each.eta_s),
            )

    def progress(self) -> list[ChangelogProgress]:
        """Return the state of every changelog; those with most left come first."""
        now_s = self._clock.monotonic_s()
        listed = [self._progress_of(changelog, now_s) for changelog in self._changelogs()]
        return sorted(listed, key=lambda each: (-each.remaining, each.partition))

    def use(self) -> StoreRestoreUse:
        """Return the values of the metrics."""
        return StoreRestoreUse(
            changelogs=[
                ChangelogRestoreUse(
                    topic=each.partition.topic,
                    partition=each.partition.partition,
                    is_active=each.is_active,
                    remaining=each.remaining,
                    records_per_s=each.records_per_s,
                )
                for each in self.progress()
            ],
            records=self._records,
            read_bytes=_with_zeros(self._bytes),
            wipes=dict(self._wipes),
            failures=self._failures,
            checkpoints=self._checkpoints,
            checkpoint_s=self._checkpoint_s,
        )

    def _progress_of(self, changelog: RestoredChangelog, now_s: float) -> ChangelogProgress:
        rate = self._rates.get(changelog.partition)
        records_per_s = rate.per_second(now_s) if rate else 0.0
        end_offset = changelog.end_offset if changelog.is_active else changelog.log_end_offset
        return ChangelogProgress(
            partition=changelog.partition,
            store=changelog.store.name,
            state=changelog.state,
            is_active=changelog.is_active,
            starting_offset=changelog.starting_offset,
            next_offset=changelog.position or 0,
            end_offset=end_offset or 0,
            remaining=changelog.remaining,
            records=changelog.total_restored,
            size_bytes=changelog.size_bytes,
            remote_bytes=changelog.remote_bytes,
            records_per_s=records_per_s,
            eta_s=changelog.remaining / records_per_s if records_per_s else None,
        )


def _with_zeros(read_bytes: Mapping[str, int]) -> dict[str, int]:
    return {source: read_bytes.get(source, 0) for source in ("remote", "local")}
