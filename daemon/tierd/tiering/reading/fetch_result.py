"""One answer to a fetch: whole batches of one segment, within a bound of bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tierd.errors import SegmentChangedError
from tierd.log import AbortedTransaction, CheckedBatches
from tierd.tiering.reading.read_session import ReadSession
from tierd.tiering.reading.tiered_log import Tier, TieredLog

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Raw batches from one segment, as Kafka's fetch gives them.

    Attributes:
        base_offset: the base offset of the first batch, which may lie below the wanted offset; None without bytes.
        position: byte position of the first batch in its segment; None for local reads.
        data: whole batches.
        next_offset: the offset at which the next read begins.
        aborted: the transactions that a reader of committed records must leave out; empty for other readers.
        throttled_ms: nothing was read, for remote reads are held back so long by their quota.
        is_pending: nothing was read in time, and the read goes on.
        goes_on: the next read is one of the tier, too.
    """

    tier: Tier
    base_offset: int | None
    position: int | None
    data: bytes
    next_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()
    throttled_ms: int = 0
    is_pending: bool = False
    goes_on: bool = False

    @classmethod
    def nothing(cls, tier: Tier, offset: int, *, throttled_ms: int = 0, is_pending: bool = False) -> "FetchResult":
        """Return a result without batches and without an error, which goes on at ``offset``."""
        return cls(tier, None, None, b"", offset, throttled_ms=throttled_ms, is_pending=is_pending)


async def read_once(session: ReadSession, offset: int, max_bytes: int, *, at_least_one: bool) -> FetchResult:
    """Return what ``session``, which was begun, has at ``offset``; arguments and errors as ``FetchTask.read``.

    Raises:
        SegmentChangedError: segments are replaced and gone under each attempt.
    """
    for _ in range(_ATTEMPTS):
        run = await _next_run(session, offset, max_bytes, at_least_one=at_least_one)
        if run.log is None or not run.parts:
            return FetchResult.nothing(run.tier, max(offset, session.empty_to))
        aborted = await session.aborted(run.log, run.parts[0].base_offsets[0], run.upper_offset)
        if aborted is not None:
            return _result(run, aborted)
    raise SegmentChangedError(f"the log changed {_ATTEMPTS} times under one read from {offset}", remedy="read again")


def _result(run: "_Run", aborted: tuple[AbortedTransaction, ...]) -> FetchResult:
    first = run.parts[0]
    return FetchResult(
        tier=run.tier,
        base_offset=first.base_offsets[0],
        position=first.positions[0] if run.tier is Tier.REMOTE else None,
        data=b"".join(piece.data for part in run.parts for piece in part.pieces),
        next_offset=run.upper_offset,
        aborted=aborted,
    )


class _Run(NamedTuple):
    """Batches of one segment for one answer."""

    tier: Tier
    parts: Sequence[CheckedBatches] = ()  # ascending, none of them empty
    log: TieredLog | None = None  # as it was when they were read; None at its end

    @property
    def upper_offset(self) -> int:
        """Return the exclusive end of the offsets."""
        return self.parts[-1].last_offsets[-1] + 1


async def _next_run(session: ReadSession, offset: int, max_bytes: int, *, at_least_one: bool) -> _Run:
    piece = await session.next_piece(offset, max_bytes=max_bytes)
    if piece is None:
        return _Run(Tier.REMOTE)
    kept = _within(piece.batches, max_bytes, at_least_one=at_least_one)
    if not kept:
        return _Run(piece.tier)
    parts, last, used = [kept], piece, len(kept)
    left_bytes = max_bytes - kept.size_bytes
    while left_bytes > 0 and used == len(last.batches) and session.goes_on(last):
        more = await session.next_piece(last.next_offset, max_bytes=left_bytes)
        if more is None or more.segment != piece.segment:
            break
        fitting = _within(more.batches, left_bytes, at_least_one=False)
        if fitting:
            parts.append(fitting)
        left_bytes -= fitting.size_bytes
        last, used = more, len(fitting)
    session.give_back(last, used)
    return _Run(piece.tier, parts, piece.log)


def _within(batches: CheckedBatches, max_bytes: int, *, at_least_one: bool) -> CheckedBatches:
    return batches.within(max_bytes) or batches[: int(at_least_one)]
