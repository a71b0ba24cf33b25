"""Operations to kill: each operation that changes the tier, the tier before it, and the expected rest."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tests.tiering.crash_points.merging import merge
from tests.tiering.crash_points.points import Points
from tests.tiering.crash_points.world import DAY_MS, GRACE_S, RECORDS_PER_SEGMENT, Process
from tierd.errors import RemoteResourceNotFoundError
from tierd.tiering import TopicPolicy

Act = Callable[[Process], Awaitable[None]]
STARTS = tuple(number * RECORDS_PER_SEGMENT for number in range(3))
KEEP = TopicPolicy()
EXPIRE_OLD = TopicPolicy(retention_ms=DAY_MS)


@dataclass(frozen=True, slots=True)
class Preparation:
    """Process before the one that is killed; ``dies`` names the point of its death, None lets it end."""

    act: Act
    policy: TopicPolicy = KEEP
    dies: Callable[[], Points] | None = None
    later_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation that changes the tier.

    Attributes:
        name: of the operation, for the command line and messages.
        act: work that is killed.
        again: one round of the next process and the operator, repeated until no work is left.
        before: the processes before.
        policy: of the topic, while ``act`` runs and after.
        readable: start offsets of the readable segments in the end; empty when none is left.
        taken_over_in_round: first round of ``again`` in which another broker acts and does not only watch.
        rebuilds: a rebuild from the bucket at every death reads the whole log.
    """

    name: str
    act: Act
    again: Act
    before: Sequence[Preparation] = ()
    policy: TopicPolicy = KEEP
    readable: Sequence[int] = STARTS
    taken_over_in_round: int = 0
    rebuilds: bool = False


async def _pass(process: Process) -> None:
    await process.copy()
    await process.expire()
    await process.sweep_uploads()


async def _copy(process: Process) -> None:
    await process.copy()


async def _expire(process: Process) -> None:
    await process.manager.discover_once()
    await process.expire()


async def _undelete(process: Process) -> None:
    await process.manager.discover_once()
    await _take_back(process)


async def _take_back(process: Process) -> None:
    name = process.world.partition.topic_partition
    await process.tiering.removals.undelete(name, None, force=False, dry_run=False)


async def _pass_and_undelete(process: Process) -> None:
    await process.copy()
    await _take_back(process)
    await process.expire()
    await process.sweep_uploads()


async def _remove(process: Process) -> None:
    await _accept_and_remove(process)
    process.clock.advance(GRACE_S + 1)
    await _accept_and_remove(process)


async def _accept_and_remove(process: Process) -> None:
    remover = process.tiering.remover
    assert remover is not None
    with contextlib.suppress(RemoteResourceNotFoundError):  # an earlier round, or process, has finished
        await remover.accept(process.world.partition)
    await remover.run_once()


async def _sweep(process: Process) -> None:
    await process.copy()
    await process.sweep_uploads()


async def _compact(process: Process) -> None:
    await process.copy()
    await merge(process)


async def _pass_and_compact(process: Process) -> None:
    await _compact(process)
    await process.expire()
    await process.sweep_uploads()


_COPIED = Preparation(_copy)
_EXPIRED = Preparation(_expire, EXPIRE_OLD)
_DIED_COPYING = Preparation(
    _copy,
    # Its manifest is the third object of a segment: all are there, the row says that the copy was begun, and the
    # temporary file of the upload is left behind.
    dies=lambda: Points(at=3, place="before FileUpload.close"),
    later_s=3600.0,
)
_COMPACTED = Preparation(_compact, later_s=GRACE_S + 1)
_DIED_COMPACTING = Preparation(
    _compact,
    # The same for an output: its manifest names the inputs, its row says that it was begun, the inputs are read.
    dies=lambda: Points(at=3, place="before FileUpload.close"),
    later_s=3600.0,
)
_MERGED = (STARTS[0], STARTS[2])

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("copy", _copy, _pass),
        Operation("expire", _expire, _pass, (_COPIED,), EXPIRE_OLD, STARTS[2:]),
        Operation(
            "finish",
            _expire,
            _pass,
            (_COPIED, Preparation(_expire, EXPIRE_OLD, later_s=GRACE_S + 1)),
            EXPIRE_OLD,
            STARTS[2:],
        ),
        Operation("undelete", _undelete, _pass_and_undelete, (_COPIED, _EXPIRED)),
        Operation("delete", _remove, _accept_and_remove, (_COPIED,), readable=(), taken_over_in_round=1),
        Operation(
            "delete_after_expiration",
            _remove,
            _accept_and_remove,
            (_COPIED, _EXPIRED),
            readable=(),
            taken_over_in_round=1,
        ),
        Operation("sweep", _sweep, _pass, (_DIED_COPYING,)),
        Operation("compact", _compact, _pass_and_compact, (_COPIED,), readable=_MERGED, rebuilds=True),
        Operation("finish_compaction", _expire, _pass, (_COPIED, _COMPACTED), readable=_MERGED, rebuilds=True),
        Operation("sweep_output", _sweep, _pass, (_COPIED, _DIED_COMPACTING), rebuilds=True),
    )
}
