"""LeaderChange: the control record with which a leader of the metadata log begins its epoch (log-format 2.4).

::

    version i16 | leaderId i32 | voters | grantingVoters | tags
    voters = count + 1 uvarint, { voterId i32 [directoryId 16 bytes, from version 1 on] tags }*
    tags = count uvarint, { tag uvarint, size uvarint, bytes }*
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tierd.log.records.batch_builder import BatchBuilder
from tierd.log.records.record import ControlRecordType, RecordError

_HEAD = struct.Struct(">hi")
_ID_BYTES = 4
_DIRECTORY_ID_BYTES = 16
_UVARINT_BYTES = 5


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """Node ids of the leader, of the voters, and of the voters that elected the leader."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...] = ()


def encode_leader_change(change: LeaderChange, *, leader_epoch: int, timestamp_ms: int, base_offset: int = 0) -> bytes:
    """Return the control batch that announces ``change`` (Kafka: MemoryRecords.withLeaderChangeMessage).

    Raises:
        ValueError: there is no leader epoch.
    """
    value = _HEAD.pack(0, change.leader_id) + _voters(change.voters) + _voters(change.granting_voters) + b"\x00"
    builder = BatchBuilder(base_offset=base_offset, is_control=True, leader_epoch=leader_epoch)
    builder.append_control(ControlRecordType.LEADER_CHANGE, value, timestamp_ms=timestamp_ms)
    return builder.build()


def _voters(ids: Sequence[int]) -> bytes:
    return _uvarint(len(ids) + 1) + b"".join(struct.pack(">ib", voter, 0) for voter in ids)


def _uvarint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def parse_leader_change(value: bytes | None) -> LeaderChange:
    """Read the value of a LEADER_CHANGE record.

    Raises:
        RecordError: it is damaged, or of a negative version.
    """
    if value is None or len(value) < _HEAD.size or value[0] & 0x80:
        raise RecordError("a change of leader is too short or of a negative version")
    version, leader_id = _HEAD.unpack_from(value)
    reader = _LeaderChangeReader(value, _HEAD.size)
    directory_bytes = _DIRECTORY_ID_BYTES if version else 0
    voters = reader.voters(directory_bytes)
    return LeaderChange(leader_id, voters, reader.voters(directory_bytes))


class _LeaderChangeReader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def voters(self, directory_bytes: int) -> tuple[int, ...]:
        found = []
        for _ in range(self._uvarint() - 1):  # a null array, 0, is no voters
            found.append(int.from_bytes(self._take(_ID_BYTES), "big", signed=True))
            self._take(directory_bytes)
            for _ in range(self._uvarint()):
                self._uvarint()
                self._take(self._uvarint())
        return tuple(found)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise RecordError("a change of leader is cut short")
        piece, self._at = self._data[self._at : end], end
        return piece

    def _uvarint(self) -> int:
        number = 0
        for group in range(_UVARINT_BYTES):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << (7 * group)
            if byte < 0x80:
                return number
        raise RecordError("a number in a change of leader is too long")
