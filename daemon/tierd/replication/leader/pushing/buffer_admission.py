"""``BufferAdmission``: the sessions that end when an append does not fit the memory of push replication (2.5)."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

from tierd.replication.leader.logs.record_memory import PushMemoryBudget
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.pushing.session_slot import SessionSlot
from tierd.replication.model.push_session import PushSessionEndReason

EndSlot = Callable[[SessionSlot, PushSessionEndReason, float], None]


class BufferAdmission:
    """Room for appends. A session gets every byte in order, or it ends: no append waits, and none is refused.

    The sessions are looked through only when an append does not fit, and at least one session ends each time.
    """

    def __init__(
        self,
        settings: PushSettings,
        budget: PushMemoryBudget,
        waiting: Sequence[Iterable[SessionSlot]],
        end_slot: EndSlot,
    ) -> None:
        """Watch over ``budget``; ``waiting`` has, by pusher, the slots whose followers lack records."""
        self._settings = settings
        self._budget = budget
        self._waiting = waiting
        self._end_slot = end_slot

    def admit(self, slots: Sequence[SessionSlot], size_bytes: int, now_s: float) -> list[SessionSlot]:
        """Make room for an append of ``size_bytes``, and return those of ``slots`` that take it."""
        budget, limit = self._budget, self._settings.session_buffer_max_bytes - size_bytes
        fits = budget.fits(size_bytes, ())
        for slot in slots:  # a loop: this is asked at each append
            fits = fits and slot.unacked_bytes <= limit and budget.fits_pusher(size_bytes, slot.pusher)
        return list(slots) if fits else self._make_room(slots, size_bytes, now_s)

    def _make_room(self, slots: Sequence[SessionSlot], size_bytes: int, now_s: float) -> list[SessionSlot]:
        limit, budget = self._settings.session_buffer_max_bytes, self._budget
        for slot in slots:
            if slot.unacked_bytes + size_bytes > limit or size_bytes > budget.cap_bytes:
                self._overflow(slot, now_s)
        for pusher in sorted({slot.pusher for slot in slots}):
            named = [slot for slot in slots if slot.pusher == pusher]
            self._evict(named, [self._waiting[pusher]], partial(budget.fits_pusher, size_bytes, pusher), now_s)
        self._evict(slots, self._waiting, partial(budget.fits, size_bytes, ()), now_s)
        return [slot for slot in slots if slot.is_live]

    def _evict(
        self,
        named: Sequence[SessionSlot],
        scopes: Iterable[Iterable[SessionSlot]],
        fits: Callable[[], bool],
        now_s: float,
    ) -> None:
        """End the sessions of ``scopes`` with the oldest records until the append fits, or no named session is left."""
        if fits():
            return
        for slot in sorted(chain.from_iterable(scopes), key=_eviction_order):
            if fits() or not any(each.is_live for each in named):
                return
            self._overflow(slot, now_s)
        if not fits():  # the rest is on its way in requests
            for slot in named:
                self._overflow(slot, now_s)

    def _overflow(self, slot: SessionSlot, now_s: float) -> None:
        if slot.is_live:
            self._end_slot(slot, PushSessionEndReason.BUFFER_OVERFLOW, now_s)


def _eviction_order(slot: SessionSlot) -> tuple[float, int, bytes, int, int]:
    identity = slot.session.identity
    partition = identity.partition
    return (
        slot.oldest_unacked_at_s,
        -slot.unacked_bytes,
        partition.topic_id.bytes,
        partition.partition,
        identity.replica_id,
    )
