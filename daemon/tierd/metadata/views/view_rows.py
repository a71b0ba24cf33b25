"""Views to rows and back: the writes of a batch for a change, and the view of loaded rows (remote-tiering 7.7)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from tierd.errors import MetadataDecodeError
from tierd.metadata.kv import Delete, Put
from tierd.metadata.rows import MetadataKeyFactory, PartitionRow, serde
from tierd.metadata.views import epoch_state
from tierd.metadata.views.epoch_state import EpochChange, RemoteLogLeaderEpochState
from tierd.metadata.views.partition_lookups import NO_STATE
from tierd.metadata.views.partition_view import PartitionView, ViewChange
from tierd.model import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    uuid_from_text,
    uuid_to_text,
)


def writes_of(change: ViewChange, keys: MetadataKeyFactory) -> list[Put | Delete]:
    """Return the rows that differ, without the partition row; their number depends on the event, not the partition."""
    view, partition = change.view, change.view.partition
    writes: list[Put | Delete] = []
    for metadata in change.segments:
        segment_id = metadata.segment.id
        value = serde.encode_segment(metadata, view.unknown.get(segment_id))
        writes.append(Put(keys.segment(partition, segment_id), value))
    for epoch in change.epochs:
        writes += _epoch_writes(epoch, partition, keys)
    writes += (Delete(keys.segment(partition, segment_id)) for segment_id in change.expired)
    if change.deletion is not None and view.claim is not None:
        value = serde.encode_deleting(partition.topic, change.deletion, view.claim.leader_epoch)
        writes.append(Put(keys.deleting(partition), value))
    return writes


def rows_of(view: PartitionView, keys: MetadataKeyFactory) -> dict[str, bytes]:
    """Return every row of a partition by its key, the partition row excepted."""
    everything = ViewChange(
        view,
        segments=(*view.segments.values(), *view.tombstones.values()),
        epochs=tuple(epoch_state.difference(epoch, NO_STATE, state) for epoch, state in view.epochs.items()),
    )
    return {write.key: write.value for write in writes_of(everything, keys) if isinstance(write, Put)}


def _epoch_writes(change: EpochChange, partition: TopicIdPartition, keys: MetadataKeyFactory) -> list[Put | Delete]:
    epoch = change.epoch
    reference, unreferenced = keys.epoch_reference, keys.epoch_unreferenced
    writes: list[Put | Delete] = [
        *(Delete(reference(partition, epoch, offset)) for offset in change.dereferenced),
        *(Delete(unreferenced(partition, epoch, id_)) for id_ in change.forgotten),
        *(Put(reference(partition, epoch, offset), serde.encode_reference(id_)) for offset, id_ in change.referenced),
        *(Put(unreferenced(partition, epoch, id_), serde.encode_mark()) for id_ in change.unreferenced),
    ]
    if change.highest is not None:
        writes.append(Put(keys.epoch_highest(partition, epoch), serde.encode_highest(change.highest)))
    return writes


@dataclass(frozen=True, slots=True)
class Repair:
    """A stored epoch state that did not fit the stored segments, the state made of it, and the write that stores it."""

    problem: str
    write: Put | Delete


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    """A partition as the store has it."""

    view: PartitionView
    repairs: tuple[Repair, ...]


def load_partition(
    partition: TopicIdPartition,
    pairs: Iterable[tuple[str, bytes]],
    keys: MetadataKeyFactory,
    *,
    strict_kafka_compat: bool = False,
) -> LoadedPartition:
    """Make the view of a partition from its rows, which come from one snapshot.

    Stored epoch states are authoritative, since replaying segments in another order gives another result. The load
    checks the states against the segments: a reference to a segment without a row is dropped, a segment that its epoch
    does not mention becomes unreferenced there.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
    """
    loader = _Loader(partition, keys)
    for key, value in pairs:
        loader.take(key, value)
    return loader.loaded(strict_kafka_compat=strict_kafka_compat)


class _EpochRows:
    """The rows of one epoch during a load; references arrive in the order of their offsets."""

    def __init__(self) -> None:
        self.references: list[tuple[int, str]] = []
        self.unreferenced: list[str] = []
        self.highest: int | None = None


class _Loader:
    def __init__(self, partition: TopicIdPartition, keys: MetadataKeyFactory) -> None:
        self._partition = partition
        self._keys = keys
        self._prefix_length = len(keys.partition_prefix(partition))
        self._row: PartitionRow | None = None
        self._ids: dict[str, UUID] = {}
        self._segments: dict[UUID, RemoteLogSegmentMetadata] = {}
        self._tombstones: list[RemoteLogSegmentMetadata] = []
        self._unknown: dict[UUID, Mapping[str, object]] = {}
        self._epochs: dict[int, _EpochRows] = {}
        self._repairs: list[Repair] = []

    def take(self, key: str, value: bytes) -> None:
        match key[self._prefix_length :].split("/"):
            case ["seg", text]:
                self._take_segment(key, value, text)
            case ["ep", epoch, "at", offset] if epoch.isdecimal() and offset.isdecimal():
                self._epoch(epoch).references.append((int(offset), serde.decode_reference(key, value)))
            case ["ep", epoch, "un", text] if epoch.isdecimal():
                self._epoch(epoch).unreferenced.append(text)
            case ["ep", epoch, "highest"] if epoch.isdecimal():
                self._epoch(epoch).highest = serde.decode_highest(key, value)
            case ["row"]:
                self._row = serde.decode_row(key, value)
            case _:
                raise MetadataDecodeError(
                    f"{key}: this tierd knows no such row", remedy="upgrade tierd; a later one wrote this store"
                )

    def _epoch(self, text: str) -> _EpochRows:
        return self._epochs.setdefault(int(text), _EpochRows())

    def _take_segment(self, key: str, value: bytes, text: str) -> None:
        try:
            segment_id = uuid_from_text(text)
        except ValueError as error:
            raise MetadataDecodeError(f"{key}: {error}", remedy="restore the store from a backup") from error
        metadata, unknown = serde.decode_segment(key, value, RemoteLogSegmentId(self._partition, segment_id))
        if metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            self._tombstones.append(metadata)
        else:
            self._ids[text] = segment_id
            self._segments[segment_id] = metadata
        if unknown:
            self._unknown[segment_id] = unknown

    def loaded(self, *, strict_kafka_compat: bool) -> LoadedPartition:
        if self._row is not None and self._row.is_tombstone:  # its other rows only wait to be erased
            empty = PartitionView(self._partition, self._row, strict_kafka_compat=strict_kafka_compat)
            return LoadedPartition(empty, ())
        epochs = {epoch: self._epoch_state(epoch, rows) for epoch, rows in self._epochs.items()}
        self._mention_all(epochs, strict_kafka_compat=strict_kafka_compat)
        self._tombstones.sort(key=lambda metadata: metadata.event_timestamp_ms)
        view = PartitionView(
            partition=self._partition,
            row=self._row,
            segments=self._segments,
            epochs={epoch: state for epoch, state in epochs.items() if not state.is_blank()},
            tombstones={metadata.segment.id: metadata for metadata in self._tombstones},
            unknown=self._unknown,
            strict_kafka_compat=strict_kafka_compat,
        )
        return LoadedPartition(view, tuple(self._repairs))

    def _epoch_state(self, epoch: int, rows: _EpochRows) -> RemoteLogLeaderEpochState:
        offsets: list[int] = []
        ids: list[UUID] = []
        for offset, text in rows.references:
            segment_id = self._ids.get(text)
            if segment_id is not None and self._may_answer(segment_id, epoch, offset):
                # The same int object as in the segment's own epoch entry: there are as many as segments.
                offsets.append(self._shared(offset, segment_id))
                ids.append(segment_id)
            else:
                self._dropped(epoch, text, Delete(self._keys.epoch_reference(self._partition, epoch, offset)))
        unreferenced: list[UUID] = []
        for text in rows.unreferenced:
            if text in self._ids:
                unreferenced.append(self._ids[text])
            else:
                key = f"{self._keys.partition_prefix(self._partition)}ep/{epoch:010d}/un/{text}"
                self._dropped(epoch, text, Delete(key))
        return RemoteLogLeaderEpochState(
            tuple(offsets), tuple(ids), frozenset(unreferenced) if unreferenced else NO_STATE.unreferenced, rows.highest
        )

    def _may_answer(self, segment_id: UUID, epoch: int, offset: int) -> bool:
        metadata = self._segments[segment_id]
        finished = metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        return finished and (epoch, offset) in metadata.segment_leader_epochs

    def _shared(self, offset: int, segment_id: UUID) -> int:
        start_offset = self._segments[segment_id].start_offset
        return start_offset if start_offset == offset else offset

    def _dropped(self, epoch: int, text: str, write: Delete) -> None:
        self._repairs.append(Repair(f"epoch {epoch} named segment {text}, which cannot answer for it", write))

    def _mention_all(self, epochs: dict[int, RemoteLogLeaderEpochState], *, strict_kafka_compat: bool) -> None:
        mentioned = {epoch: {*state.ids, *state.unreferenced} for epoch, state in epochs.items()}
        for segment_id, metadata in self._segments.items():
            if strict_kafka_compat and metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                continue  # Kafka drops a longer segment with an equal start from its epoch
            for epoch, _ in metadata.segment_leader_epochs:
                if segment_id not in mentioned.get(epoch, ()):
                    self._mention(epochs, epoch, segment_id)

    def _mention(self, epochs: dict[int, RemoteLogLeaderEpochState], epoch: int, segment_id: UUID) -> None:
        state = epochs.get(epoch, NO_STATE)
        hidden = state.unreferenced | {segment_id}
        epochs[epoch] = RemoteLogLeaderEpochState(state.first_offsets, state.ids, hidden, state.highest)
        key = self._keys.epoch_unreferenced(self._partition, epoch, segment_id)
        problem = f"epoch {epoch} did not mention segment {uuid_to_text(segment_id)}"
        self._repairs.append(Repair(problem, Put(key, serde.encode_mark())))
