"""Rates of the daemon's work, from two answers of its status. Pure."""

from dataclasses import dataclass

from tierd.serve import PartitionSummary, StatusAnswer, TotalsSummary


@dataclass(frozen=True, slots=True)
class PartitionRate:
    """Movement of one partition: records a second into the tier and into the log, and the bytes that wait."""

    partition: str
    copied: float
    written: float
    lag_bytes: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Work between two answers.

    Attributes:
        seconds: time between them, by the clock of the daemon; above 0.
        work: each number of ``TotalsSummary``, and the bytes of the read endpoint, a second.
        partitions: those that moved, the busiest first.
    """

    seconds: float
    work: dict[str, float]
    partitions: tuple[PartitionRate, ...]


def totals_of(status: StatusAnswer) -> dict[str, int]:
    """Return the work since the start: the totals, and the bytes of all listeners of the read endpoint."""
    listeners = status.endpoint.listeners.values()
    return {
        **{name: getattr(status.totals, name, 0) for name in TotalsSummary.model_fields},
        "endpoint_sent_bytes": sum(each.sent_bytes for each in listeners),
        "endpoint_received_bytes": sum(each.received_bytes for each in listeners),
    }


def rates_between(before: StatusAnswer, after: StatusAnswer) -> Rates | None:
    """Return the rates between two answers of one daemon; None if it was started again, or its clock stepped back.

    A number that fell, since a topic went, has the rate 0.
    """
    seconds = (after.now_ms - before.now_ms) / 1000
    if (before.pid, before.started_ms) != (after.pid, after.started_ms) or seconds <= 0:
        return None
    earlier = totals_of(before)
    work = {name: max(0, total - earlier[name]) / seconds for name, total in totals_of(after).items()}
    former = {each.partition: each for each in before.partitions}
    moved = [_moved(former[each.partition], each, seconds) for each in after.partitions if each.partition in former]
    busy = [each for each in moved if each.copied or each.written]
    return Rates(seconds, work, tuple(sorted(busy, key=lambda each: (-each.copied - each.written, each.partition))))


def _moved(before: PartitionSummary, after: PartitionSummary, seconds: float) -> PartitionRate:
    return PartitionRate(
        after.partition,
        copied=_records(before.copied_through, after.copied_through) / seconds,
        written=_records(before.high_watermark, after.high_watermark) / seconds,
        lag_bytes=after.lag_bytes,
    )


def _records(before: int | None, after: int | None) -> int:
    """Return the offsets between two answers; 0 where one is not known, or after a truncation."""
    return 0 if before is None or after is None else max(0, after - before)
