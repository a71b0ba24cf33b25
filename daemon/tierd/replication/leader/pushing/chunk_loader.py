"""``ChunkLoader``: reads of the file ranges that sessions begin with, a bounded chunk at a time (2.5)."""

from itertools import count
from typing import Final, NamedTuple

from tierd.errors import CorruptRecordError
from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.leader.logs.record_memory import RecordsRef
from tierd.replication.leader.pushing.peer_lane import PeerLane
from tierd.replication.leader.pushing.push_actions import ReadChunk, ReleaseFile
from tierd.replication.leader.pushing.pusher_slots import PusherSlots
from tierd.replication.leader.pushing.queued_records import OpeningRange, QueuedRecords, RecordsSpan
from tierd.replication.leader.pushing.session_slot import SessionSlot
from tierd.replication.model.push_session import PushSessionEndReason

_ROOM_RETRY_S: Final = 0.05


class _ChunkRead(NamedTuple):
    slot: SessionSlot
    file: FileRecords
    reservation: RecordsRef


class ChunkLoader:
    """Chunks of one pusher. The memory of a chunk is reserved before it is read."""

    def __init__(self, slots: PusherSlots) -> None:
        """Begin without a read."""
        self._slots = slots
        self._reads: dict[int, _ChunkRead] = {}
        self._ids = count()

    @property
    def is_reading(self) -> bool:
        """Return True if a read has not ended."""
        return bool(self._reads)

    def load(self, lane: PeerLane, now_s: float) -> None:
        """Read the chunks that the lane has room for."""
        while lane.may_load(now_s):
            slot = next(iter(lane.loading))
            if slot.opening is None or not slot.opening.needs_chunk:
                del lane.loading[slot]
            elif self._begin(slot, slot.opening):
                del lane.loading[slot]
                lane.chunk_holders.add(slot)
            else:
                lane.loads_not_before_s = now_s + _ROOM_RETRY_S

    def on_chunk_read(self, chunk_id: int, data: bytes | None, now_s: float) -> None:
        """Take the batches that were read; None when the range cannot be read."""
        read = self._reads.pop(chunk_id)
        slot, opening = read.slot, read.slot.opening
        read.reservation.release(slot.pusher)
        if opening is None:  # the session ended
            self._slots.shared.actions.append(ReleaseFile(read.file))
            return
        opening.reservation = None
        try:
            span = RecordsSpan.of(data or b"")
        except CorruptRecordError:
            self._slots.end(slot, PushSessionEndReason.LEADER_REPLICATION_ERROR, now_s)
            return
        ref = RecordsRef(self._slots.shared.budget, data or b"")
        if self._slots.shared.admit([slot], ref.size_bytes, now_s):
            slot.load_chunk(QueuedRecords(ref, slot.acked_offset, span, opening.queued_at_s))
        self._slots.touch(slot, now_s)

    def _begin(self, slot: SessionSlot, opening: OpeningRange) -> bool:
        """Ask for the next chunk of a range; False if there is no memory for it."""
        shared, file = self._slots.shared, opening.file
        max_bytes = min(shared.settings.file_chunk_bytes, file.size_bytes - opening.position)
        if not shared.budget.fits(max_bytes, (slot.pusher,)):
            return False
        opening.reservation = RecordsRef(shared.budget, b"", max_bytes)
        opening.reservation.retain(slot.pusher)
        chunk_id = next(self._ids)
        self._reads[chunk_id] = _ChunkRead(slot, file, opening.reservation)
        shared.actions.append(ReadChunk(slot.pusher, chunk_id, file, opening.position, max_bytes))
        return True
