"""BatchGroups: batches that wait while a backend is busy share its next round trip, and so one sync to disk.

GroupEffect: what a group leaves whose batches are applied one after the other, worked out before it is written.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierd.errors import BackendUnavailableError, PreconditionFailedError, TierError
from tierd.metadata.kv.key_value_store import Batch, DeletePrefix, Put

_BATCHES_PER_GROUP: Final = 64
_ROWS_PER_GROUP: Final = 2048  # writes and preconditions; a batch that has more goes alone
_CONSIDERED: Final = 1024  # waiting batches considered for one group, so that choosing stays cheap

WriteGroup = Callable[[Sequence[Batch]], Awaitable[Sequence[TierError | None]]]
"""Applies batches that share no key, each wholly or not at all; per batch None, or the error if it is not durable.

A batch that removes a prefix is the only one of its group.
"""


@dataclass(frozen=True, slots=True, eq=False)
class WaitingBatch:
    """A batch, the keys that it reads or writes, the future of its caller, and the prefixes that it removes."""

    batch: Batch
    keys: frozenset[str]
    answer: "asyncio.Future[None]"
    prefixes: frozenset[str] = frozenset()


def next_group(
    waiting: Iterable[WaitingBatch], busy: AbstractSet[str], *, is_removing: bool = False
) -> list[WaitingBatch]:
    """Choose the batches that go together next: no two batches with a key in common, and none with a key in ``busy``.

    A batch that must wait holds back those behind it that share a key with it, so that batches on one key are
    applied in the order in which they were asked for. A batch that removes a prefix waits for all before it, and all
    behind it wait for that batch.

    Args:
        waiting: in the order in which they were asked for.
        busy: keys of the batches under way.
        is_removing: a batch that removes a prefix is under way.
    """
    group: list[WaitingBatch] = []
    blocked, rows = set(busy), 0
    if is_removing:
        return group
    for number, entry in zip(range(_CONSIDERED), waiting, strict=False):
        if entry.prefixes:
            return [entry] if number == 0 and not busy else group
        size = len(entry.batch.writes) + len(entry.batch.expect)
        if len(group) == _BATCHES_PER_GROUP or (group and rows + size > _ROWS_PER_GROUP):
            break
        if blocked.isdisjoint(entry.keys):
            group.append(entry)
            rows += size
        blocked |= entry.keys
    return group


class BatchGroups:
    """A queue in front of ``write``, which is called for at most ``lanes`` groups at a time.

    A caller that is cancelled while its batch waits leaves nothing; after a later cancellation it may be applied.
    """

    def __init__(self, write: WriteGroup, *, lanes: int, name: str) -> None:
        self._write = write
        self._lanes = lanes
        self._name = name
        self._waiting: list[WaitingBatch] = []
        self._busy: set[str] = set()
        self._is_removing = False
        self._writing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def apply(self, batch: Batch) -> None:
        """Return when the batch is durable; raise the error that ``write`` returns for it."""
        if self._closed:
            raise closed(self._name)
        keys = [write.key for write in batch.writes if not isinstance(write, DeletePrefix)]
        keys += [expect.key for expect in batch.expect]
        prefixes = frozenset(write.prefix for write in batch.writes if isinstance(write, DeletePrefix))
        entry = WaitingBatch(batch, frozenset(keys), asyncio.get_running_loop().create_future(), prefixes)
        entry.answer.add_done_callback(lambda answer: self._withdraw(entry) if answer.cancelled() else None)
        self._waiting.append(entry)
        self._begin_groups()
        await entry.answer

    async def close(self) -> None:
        """Refuse further batches and let those that were asked for end; closing twice is harmless."""
        self._closed = True
        while self._writing:
            await asyncio.wait(self._writing)

    def _withdraw(self, entry: WaitingBatch) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(entry)

    def _begin_groups(self) -> None:
        while self._waiting and len(self._writing) < self._lanes:
            waiting = (entry for entry in self._waiting if not entry.answer.cancelled())
            group = next_group(waiting, self._busy, is_removing=self._is_removing)
            if not group:
                return
            chosen = set(group)
            self._waiting = [entry for entry in self._waiting if entry not in chosen]
            for entry in group:
                self._busy |= entry.keys
                self._is_removing |= bool(entry.prefixes)
            writing = asyncio.create_task(self._write_group(group), name=f"batches to {self._name}")
            self._writing.add(writing)
            writing.add_done_callback(partial(self._end_group, group))

    async def _write_group(self, group: list[WaitingBatch]) -> None:
        try:
            outcomes: Sequence[BaseException | None] = await self._write([entry.batch for entry in group])
        except BaseException as bug:  # every caller hears of it, or they would wait for ever
            outcomes = [bug] * len(group)
            if not isinstance(bug, Exception):
                raise
        finally:
            for entry, outcome in zip(group, outcomes, strict=True):
                if entry.answer.done():  # the caller was cancelled meanwhile
                    continue
                if outcome is None:
                    entry.answer.set_result(None)
                else:
                    entry.answer.set_exception(outcome)

    def _end_group(self, group: list[WaitingBatch], writing: "asyncio.Task[None]") -> None:
        self._writing.discard(writing)
        for entry in group:
            self._busy -= entry.keys
            self._is_removing &= not entry.prefixes  # it is the only one under way
        self._begin_groups()


def closed(name: str) -> BackendUnavailableError:
    """Return the error of every call after ``close``."""
    return BackendUnavailableError(f"{name}: the metadata store is closed")


@dataclass(frozen=True, slots=True)
class BatchGroupEffect:
    """Result of a group of batches.

    Attributes:
        outcomes: for each batch None, or its precondition that does not hold; such a batch leaves nothing.
        rows: the value of each key that a batch writes, None for a key that it removes; of several writes the last.
    """

    outcomes: list[PreconditionFailedError | None]
    rows: dict[str, bytes | None]


def group_effect(batches: Sequence[Batch], present: Mapping[str, bytes]) -> BatchGroupEffect:
    """Return the effect of ``batches``, each applied after those before it.

    Args:
        batches: none of them removes a prefix.
        present: the value that each expected key had before; a key without a value is absent.
    """
    outcomes: list[PreconditionFailedError | None] = []
    rows: dict[str, bytes | None] = {}

    def value_of(key: str) -> bytes | None:
        return rows[key] if key in rows else present.get(key)

    for batch in batches:
        refusal = batch.refusal(value_of)
        outcomes.append(refusal)
        if refusal is None:
            for write in batch.writes:
                assert not isinstance(write, DeletePrefix), "its rows are not known before they are read"
                rows[write.key] = write.value if isinstance(write, Put) else None
    return BatchGroupEffect(outcomes, rows)
