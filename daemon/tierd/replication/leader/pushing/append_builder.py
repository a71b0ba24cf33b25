"""Builders of AppendRecords requests (push-replication 2.4, 2.6).

A builder takes slots one at a time and answers if it took the slot. A refusal leaves builder and slot unchanged: the
owner then sends the request and offers the slot to a fresh builder. A builder has one owner.
"""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tierd.replication.leader.logs.record_memory import RecordsRef
from tierd.replication.leader.pushing.push_actions import PushLeader
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.pushing.queued_records import QueuedRecords
from tierd.replication.leader.pushing.session_slot import SessionSlot, SlotState
from tierd.replication.model.messages import AppendRecordsRequest, PartitionAppend, RecordBytes

MAX_PARTITIONS: Final = 512
"""Partitions of one request: building one never holds the event loop for long."""


@dataclass(slots=True)
class SentPart:
    """Part of a request that belongs to one slot.

    Attributes:
        held: bytes that the request keeps until its answer, or until its connection is closed.
    """

    slot: SessionSlot
    held: tuple[RecordsRef, ...]
    high_watermark: int
    log_start_offset: int
    is_end_signal: bool


@dataclass(slots=True)
class SentAppend:
    """Request without an answer."""

    request_id: int
    link_id: int
    sent_at_s: float
    deadline_s: float
    size_bytes: int
    parts: dict[tuple[UUID, int], SentPart] = field(repr=False)


class PartitionRecordsBuilder:
    """Run of batches of one slot for one request."""

    def __init__(self, partition_max_bytes: int, request_room_bytes: int | None) -> None:
        """Begin empty. ``request_room_bytes`` is None for the first records of a request, which always fit."""
        self._partition_room_bytes = partition_max_bytes
        self._request_room_bytes = request_room_bytes
        self.pieces: list[RecordBytes] = []
        self.held: list[RecordsRef] = []
        self.size_bytes = 0
        self.end_offset = -1

    def add(self, queued: QueuedRecords) -> bool:
        """Take an append, or the whole batches of it that fit; return False if the next append does not fit either."""
        room = self._partition_room_bytes
        if self._request_room_bytes is not None:
            room = min(room, self._request_room_bytes)
        room -= self.size_bytes
        is_whole = queued.size_bytes <= room
        if is_whole:
            end = queued.ref.size_bytes
        elif self.pieces:
            return False
        else:
            end = queued.position_within(room)
            if self._request_room_bytes is not None and end - queued.position > self._request_room_bytes:
                return False
            is_whole = end == queued.ref.size_bytes
        data = queued.ref.data
        self.pieces.append(data if end - queued.position == len(data) else memoryview(data)[queued.position : end])
        self.held.append(queued.ref)
        self.size_bytes += end - queued.position
        self.end_offset = queued.end_offset if is_whole else queued.end_offset_at(end)
        return is_whole


class AppendRecordsBuilder:
    """Builder of one AppendRecords request to one peer."""

    def __init__(self, settings: PushSettings, leader: PushLeader, replica_epoch: int) -> None:
        """Begin empty."""
        self._settings = settings
        self._leader = leader
        self._replica_epoch = replica_epoch
        self._partitions: list[PartitionAppend] = []
        self.parts: dict[tuple[UUID, int], SentPart] = {}
        self.size_bytes = 0

    def offer(self, slot: SessionSlot) -> bool:
        """Take what is due of ``slot``; False if that does not fit."""
        if len(self._partitions) >= MAX_PARTITIONS:
            return False
        if slot.state is SlotState.STOPPING:
            self._add_end_signal(slot)
            return True
        settings = self._settings
        room = settings.request_max_bytes - self.size_bytes if self.size_bytes else None
        records = PartitionRecordsBuilder(settings.partition_max_bytes, room)
        waiting = slot.sendable()
        for queued in waiting:
            if not records.add(queued):
                break
        if waiting and not records.pieces:
            return False
        self._add(slot, records)
        return True

    def build(self) -> AppendRecordsRequest:
        """Return the request."""
        return AppendRecordsRequest(
            cluster_id=self._leader.cluster_id,
            leader_id=self._leader.node_id,
            leader_process_epoch=self._leader.process_epoch,
            replica_epoch=self._replica_epoch,
            partitions=tuple(self._partitions),
        )

    def _add(self, slot: SessionSlot, records: PartitionRecordsBuilder) -> None:
        identity = slot.session.identity
        is_check = bool(records.pieces) or slot.state is SlotState.OPENING
        end_offset = records.end_offset if records.pieces else slot.acked_offset
        part = SentPart(
            slot,
            tuple(records.held),
            slot.high_watermark.to_send(end_offset),
            slot.log_start_offset.to_send(end_offset),
            is_end_signal=False,
        )
        for ref in part.held:
            ref.retain(slot.pusher)
        self.size_bytes += records.size_bytes
        partition = identity.partition
        self.parts[partition.topic_id, partition.partition] = part
        self._partitions.append(
            PartitionAppend(
                topic_id=partition.topic_id,
                partition=partition.partition,
                leader_epoch=identity.leader_epoch,
                session_id=identity.session_id,
                append_offset=slot.acked_offset if is_check else -1,
                last_epoch=slot.acked_epoch if is_check else -1,
                high_watermark=part.high_watermark,
                log_start_offset=part.log_start_offset,
                records=records.pieces or None,
            )
        )

    def _add_end_signal(self, slot: SessionSlot) -> None:
        identity, partition = slot.session.identity, slot.session.identity.partition
        assert slot.end_reason is not None
        self.parts[partition.topic_id, partition.partition] = SentPart(slot, (), -1, -1, is_end_signal=True)
        self._partitions.append(
            PartitionAppend(
                topic_id=partition.topic_id,
                partition=partition.partition,
                leader_epoch=identity.leader_epoch,
                session_id=identity.session_id,
                append_offset=-1,
                last_epoch=-1,
                end_session=True,
                end_reason=slot.end_reason.value,
            )
        )
