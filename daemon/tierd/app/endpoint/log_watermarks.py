"""LogWatermarks: the readable end of local logs, from the broker beside tierd, or from what it wrote on disk."""

from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tierd.app.endpoint.local_replica import LocalReplica
from tierd.clock import Clock
from tierd.model import TopicIdPartition
from tierd.tiering import LogOffsets

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.control import BrokerWatermarks


class LocalLogEnd(NamedTuple):
    """Readable end of a local log.

    Attributes:
        high_watermark: exclusive; None until the broker has written one.
        last_stable_offset: exclusive; None where the log itself has to be asked.
        log_start_checkpoint: entry of ``log-start-offset-checkpoint``; None without an entry.
        is_current: False where the end may be an old one: the broker, which should be asked, does not answer, or it has
            not written an end since it started.
    """

    high_watermark: int | None
    last_stable_offset: int | None
    log_start_checkpoint: int | None
    is_current: bool


class LogWatermarks:
    """Watermarks of the replicas of this host, and the listeners who wait for them to move."""

    def __init__(
        self,
        log_offsets: LogOffsets,
        *,
        broker: "BrokerWatermarks | None",
        broker_log_dirs: Collection[Path],
        clock: Clock,
    ) -> None:
        """Read nothing yet.

        Args:
            log_offsets: the checkpoints of a broker, and the logs that tierd owns.
            broker: is asked for the watermarks of now; None where no connection to Kafka is configured.
            broker_log_dirs: log dirs of that broker; the others are tierd's own.
            clock: for the age of checkpoints.
        """
        self._log_offsets = log_offsets
        self._broker = broker
        self._broker_log_dirs = frozenset(broker_log_dirs)
        self._clock = clock
        self._listeners: dict[Path, dict[object, Callable[[], None]]] = {}
        self._written_s: dict[Path, float] = {}

    async def end(self, partition: TopicIdPartition, replica: LocalReplica) -> LocalLogEnd:
        """Return the readable end of a log now.

        Raises:
            TierError: it is not known now.
        """
        offsets = await self._log_offsets.offsets(replica.log_dir, partition)
        written, start = offsets.high_watermark, offsets.log_start_offset
        broker = self._broker_of(replica)
        if broker is None:
            return LocalLogEnd(written, None, start, is_current=written is not None)
        known = await broker.current(partition, from_offset=_below(written, replica))
        if known is None or (not broker.is_answering and known.high_watermark < (written or 0)):
            return LocalLogEnd(written, None, start, is_current=False)
        stable = known.last_stable_offset if known.last_stable_offset >= 0 else None
        return LocalLogEnd(known.high_watermark, stable, start, is_current=broker.is_answering)

    def listen(
        self, partition: TopicIdPartition, replica: LocalReplica, on_change: Callable[[], None]
    ) -> Callable[[], None]:
        """Call ``on_change`` whenever the end may have moved, until the returned function is called."""
        listeners, ticket = self._listeners.setdefault(replica.log_dir, {}), object()
        listeners[ticket] = on_change
        leaving = ExitStack()
        leaving.callback(listeners.pop, ticket, None)
        if (broker := self._broker_of(replica)) is not None:
            leaving.callback(broker.listen(partition, on_change, from_offset=_below(None, replica)))
        return leaving.close

    def written(self, log_dir: Path) -> None:
        """Take note that the broker wrote the high watermarks of a log dir, and call the listeners of its logs."""
        self._written_s[log_dir] = self._clock.monotonic_s()
        for on_change in tuple(self._listeners.get(log_dir, {}).values()):
            on_change()

    def age_s(self) -> float | None:
        """Return the age of the oldest watermark in use; None where none is in use, or none was seen written yet."""
        if self._broker is not None:
            known = self._broker.statistics()
            return known.silent_s if known.followed else None
        now_s = self._clock.monotonic_s()
        return max((now_s - each for each in self._written_s.values()), default=None)

    def problem(self) -> str:
        """Return why the broker tells no watermarks, of all partitions or of some; empty if it tells all."""
        if self._broker is None:
            return ""
        known = self._broker.statistics()
        if known.last_error or not known.refused:
            return known.last_error
        answers = ", ".join(sorted(set(known.refused.values())))
        return f"the broker answers {answers} for some partitions; tierd's user needs Read on their topics"

    def _broker_of(self, replica: LocalReplica) -> "BrokerWatermarks | None":
        return self._broker if replica.log_dir in self._broker_log_dirs else None


def _below(written: int | None, replica: LocalReplica) -> int:
    """Return an offset of the log at or below its high watermark."""
    segments = replica.scan.segments
    first = segments[0].base_offset if segments else 0
    return first if written is None else max(written, first)
