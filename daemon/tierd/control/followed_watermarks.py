"""FollowedWatermarks: watermarks of the partitions in use, by the answers of one broker. No I/O, no clock.

Answers come over two connections, so that an older answer may come after a newer one. A lower high watermark counts
only in an answer to a request that was sent after the known one had come; until then it is a doubt.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from tierd.control.watermark_session import PARTITIONS_PER_REQUEST, Watermark, WatermarkAnswer
from tierd.model import PartitionKey

UNUSED_S: Final = 30.0
"""A partition without listeners is followed for so long: consumers listen again and again."""
RETRY_S: Final = 1.0
"""Wait before a partition with an error is asked for again."""
_SHOWN: Final = 5


@dataclass(slots=True)
class _FollowedWatermark:
    """One partition in use.

    Attributes:
        from_offset: where a Fetch waits: the known high watermark, or a lower offset before the first answer.
        known: by the newest answer.
        known_s: when that answer came.
        is_doubted: an answer that may be older than the known one had a lower high watermark.
        problem: Kafka's name of the error of the last answer; empty without one.
    """

    from_offset: int
    used_s: float
    known: Watermark | None = None
    known_s: float = 0.0
    is_doubted: bool = False
    problem: str = ""
    failed_s: float = 0.0
    listeners: dict[object, Callable[[], None]] = field(default_factory=dict)


class FollowedWatermarks:
    """The partitions in use, with their listeners."""

    def __init__(self) -> None:
        self._followed: dict[PartitionKey, _FollowedWatermark] = {}
        self._wanted: dict[PartitionKey, None] = {}

    def __len__(self) -> int:
        return len(self._followed)

    # ---------------------------------------------------------------- the use of partitions

    def use(self, key: PartitionKey, *, from_offset: int, now_s: float) -> None:
        """Follow a partition from now on. ``from_offset`` lies in its log, at or below the high watermark."""
        followed = self._followed.get(key)
        if followed is None:
            self._followed[key] = _FollowedWatermark(from_offset, now_s)
        else:
            followed.used_s = now_s
            if followed.known is None:
                followed.from_offset = from_offset

    def listen(self, key: PartitionKey, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` whenever an offset of a partition in use moves, until the returned function is called."""
        followed, ticket = self._followed[key], object()
        followed.listeners[ticket] = on_change

        def leave() -> None:
            followed.listeners.pop(ticket, None)

        return leave

    def known(self, key: PartitionKey) -> Watermark | None:
        """Return the offsets of a partition in use; None before the first answer."""
        followed = self._followed.get(key)
        return followed.known if followed is not None else None

    def is_current(self, key: PartitionKey, covered: Collection[PartitionKey]) -> bool:
        """Return True if the offsets are those of now, where a request waits for changes of ``covered``."""
        followed = self._followed[key]
        return followed.known is not None and not followed.is_doubted and key in covered

    def is_refused(self, key: PartitionKey, now_s: float) -> bool:
        """Return True if the broker refused to answer for the partition a moment ago."""
        followed = self._followed[key]
        return bool(followed.problem) and now_s - followed.failed_s < RETRY_S

    def problems(self) -> dict[PartitionKey, str]:
        """Return some partitions that the broker does not answer for, each with Kafka's name of the error."""
        found = ((key, each.problem) for key, each in self._followed.items() if each.problem)
        return dict(pair for pair, _ in zip(found, range(_SHOWN), strict=False))

    # ---------------------------------------------------------------- the questions

    def want(self, key: PartitionKey) -> None:
        """Ask for a partition in use with the next question."""
        self._wanted[key] = None

    def joining(self, covered: Collection[PartitionKey]) -> list[PartitionKey]:
        """Return the partitions with listeners that are not ``covered`` and that the broker does not refuse."""
        return [
            key for key, each in self._followed.items() if each.listeners and not each.problem and key not in covered
        ]

    def question(self) -> dict[PartitionKey, int]:
        """Take the partitions that are wanted, as many as one request may have, each with the offset to ask at."""
        keys = list(self._wanted)[:PARTITIONS_PER_REQUEST]
        for key in keys:
            del self._wanted[key]
        return {key: self._followed[key].from_offset for key in keys if key in self._followed}

    def offsets(self, now_s: float) -> dict[PartitionKey, int]:
        """Return the offsets to wait at; partitions that were not used for a while are forgotten."""
        unused = [key for key, each in self._followed.items() if not each.listeners and now_s - each.used_s >= UNUSED_S]
        for key in unused:
            del self._followed[key]
        return {key: self._followed[key].from_offset for key in self._followed if not self.is_refused(key, now_s)}

    # ---------------------------------------------------------------- the answers

    def take(self, answer: WatermarkAnswer, *, sent_s: float, now_s: float) -> Iterator[Callable[[], None]]:
        """Take the answer to a request that was sent at ``sent_s``; yield the listeners of what moved."""
        for key, problem in answer.errors.items():
            if (followed := self._followed.get(key)) is not None:
                followed.problem, followed.failed_s = problem, now_s
                # The log of the broker may have been cut back below the offset that was asked at.
                followed.known = None if problem == "offset_out_of_range" else followed.known
        for key, watermark in answer.watermarks.items():
            if (followed := self._followed.get(key)) is not None:
                yield from self._moved(followed, watermark, sent_s=sent_s, now_s=now_s)

    def _moved(
        self, followed: _FollowedWatermark, watermark: Watermark, *, sent_s: float, now_s: float
    ) -> Iterator[Callable[[], None]]:
        known = followed.known
        followed.problem = ""
        if known is not None and watermark.high_watermark < known.high_watermark and sent_s <= followed.known_s:
            followed.is_doubted = True
            return
        followed.is_doubted = False
        followed.known, followed.known_s = watermark, now_s
        followed.from_offset = watermark.high_watermark
        if watermark != known:
            yield from tuple(followed.listeners.values())
