"""Producer snapshots: the state of every producer of a log at an offset (log-format 3.3).

::

    0     2       6        10
    ┌─────┬───────┬────────┬─────────┬─ ─ ─┬─────────┐
    │ ver │ crc   │ count  │ entry 0 │     │ entry n │     ver is 1; crc: CRC-32C of all bytes from position 6 on
    │ i16 │ u32   │ i32    │ 46 B    │     │         │
    └─────┴───────┴────────┴─────────┴─ ─ ─┴─────────┘

    0            8       10         14          22      26          34            38                  46
    ┌────────────┬───────┬──────────┬───────────┬───────┬───────────┬─────────────┬───────────────────┐
    │ producerId │ epoch │ last     │ last      │ delta │ timestamp │ coordinator │ currentTxnFirst   │
    │ i64        │ i16   │ seq. i32 │ off. i64  │ i32   │ i64       │ epoch i32   │ Offset i64        │
    └────────────┴───────┴──────────┴───────────┴───────┴───────────┴─────────────┴───────────────────┘

All numbers are big-endian. ``delta`` is the last offset of the last batch minus its first offset.
"""

import struct
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path

from tierd.errors import CorruptIndexError, MissingArtefactError, SegmentChangedError
from tierd.kernels import crc32c
from tierd.log.files.source import read_whole
from tierd.log.records.batch_header import MAX_SEQUENCE

_HEADER = struct.Struct(">hIi")  # version, crc of everything behind it, number of entries
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_VERSION = 1
_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ProducerStateEntry:
    """State of one producer, with the last batch that it wrote.

    The value of ``current_txn_first_offset`` is the state of the producer. These events change it (log-format 4.4)::

        state               data batch       transactional batch   ABORT or COMMIT    silent for too long
        no entry            no transaction   open transaction      no transaction     -
        no transaction: -1  no transaction   open transaction      no transaction     no entry
        open transaction    refused          open transaction      no transaction     open transaction

                     ┌──────────── transactional batch ─────────────┐
                     │                                              ▼
        no entry ────┴─ data ──► no transaction ─ transactional ─► open transaction
           ▲            batch      │      ▲          batch          │
           └──── silent for ───────┘      └──── ABORT or COMMIT ────┘
                 too long

    Attributes:
        last_offset: last offset of the last batch; -1 when only a marker is known.
        offset_delta: last offset minus first offset of that batch.
        current_txn_first_offset: first offset of the open transaction; -1 without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def first_sequence(self) -> int:
        """Return the sequence of the last batch's first record; -1 when no batch is known."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE if self.last_offset >= 0 else -1


_values = attrgetter(*(field.name for field in fields(ProducerStateEntry)))


def parse_producer_snapshot(data: bytes, name: str) -> tuple[ProducerStateEntry, ...]:
    """Parse a whole ``.snapshot`` file.

    Raises:
        CorruptIndexError: another version, a wrong size, or a wrong checksum.
    """
    if len(data) < _HEADER.size:
        raise _corrupt(name, f"{len(data)} bytes are too few")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise _corrupt(name, f"version {version} is not known, only {_VERSION}")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise _corrupt(name, "wrong checksum")
    if count < 0 or _HEADER.size + count * _ENTRY.size != len(data):
        raise _corrupt(name, f"{count} entries do not fill {len(data)} bytes")
    return tuple(ProducerStateEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEADER.size :]))


def read_producer_snapshot(path: Path) -> tuple[ProducerStateEntry, ...]:
    """Read a ``.snapshot`` file. Blocking.

    Raises:
        MissingArtefactError: the file does not exist.
        CorruptIndexError: its content is no snapshot.
        LogDirOfflineError: the file cannot be read.
    """
    try:
        data = read_whole(path, limit_bytes=_LIMIT_BYTES, error=CorruptIndexError)
    except SegmentChangedError as error:
        raise MissingArtefactError(
            f"{path}: missing", remedy="a copy makes it anew, and so does tierd repair"
        ) from error
    return parse_producer_snapshot(data, str(path))


def encode_producer_snapshot(entries: tuple[ProducerStateEntry, ...]) -> bytes:
    """Return the bytes that Kafka would write for ``entries``, in their order."""
    body = struct.pack(">i", len(entries)) + b"".join(_ENTRY.pack(*_values(entry)) for entry in entries)
    return struct.pack(">hI", _VERSION, crc32c(body)) + body


def _corrupt(name: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(f"{name}: {problem}", remedy="a copy makes it anew, and so does tierd repair")
