"""The whole and sound batches at the front of some bytes of an active segment, which a broker may be writing.

::

    [ batch | batch | batch | half of a ba          TORN: the bytes end within a batch
    [ batch | batch | batch | 0 0 0 ... 0 ]         BAD:  unused room of a preallocated file, or a batch half written
    [ batch | batch | batch ]                       END
              ^ reaches the limit                   LIMIT
"""

import struct
import zlib
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from tierd.errors import CorruptRecordError
from tierd.kernels import crc32c
from tierd.log import OVERHEAD_BYTES, BatchHeader, parse_header
from tierd.model import EpochEntry

_V2_FRONT: Final = struct.Struct(">qiibIhi")  # offset, length, epoch, magic, crc, attributes, last offset delta
_MAGIC_AT: Final = 16
_V2_CRC_START: Final = 21
_LENGTH_OVERHEAD: Final = 12
_MAX_OFFSET: Final = (1 << 63) - 1


class TailStop(Enum):
    """The reason why a walk ended."""

    END = auto()
    TORN = auto()
    BAD = auto()
    LIMIT = auto()


@dataclass(slots=True)
class WholeBatches:
    """Result of a walk over some bytes.

    Attributes:
        next_offset: behind the last batch.
        size_bytes: of the batches together.
        last_at: place of the last batch in the bytes; -1 without one.
        wanted_bytes: size of the batch that does not fit, as its header says; 0 where its header does not fit.
        offsets: the log end offset before each batch.
        places: of each batch in the bytes.
        epochs: first offset of each leader epoch.
    """

    next_offset: int
    size_bytes: int = 0
    stop: TailStop = TailStop.END
    last_at: int = -1
    wanted_bytes: int = 0
    offsets: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    epochs: list[EpochEntry] = field(default_factory=list)


def whole_batches(
    data: bytes, *, next_offset: int, end_offset: int = _MAX_OFFSET, limit_offset: int | None = None
) -> WholeBatches:
    """Walk over the batches of ``data`` up to the first one that is not whole, not sound, or beyond the limit.

    Args:
        data: begins with a batch.
        next_offset: smallest base offset of the first batch.
        end_offset: exclusive end of the offsets that the segment may have; the checksum of a batch does not cover its
            offset.
        limit_offset: no batch that reaches this offset is taken; None without a limit.
    """
    found = WholeBatches(next_offset)
    limit = _MAX_OFFSET if limit_offset is None else limit_offset
    view, end, at, epoch = memoryview(data), len(data), 0, -1
    while at < end:
        if end - at >= OVERHEAD_BYTES and data[at + _MAGIC_AT] == 2:
            base, length, batch_epoch, _, crc, _, delta = _V2_FRONT.unpack_from(data, at)
            size, last, crc_start = length + _LENGTH_OVERHEAD, base + delta, _V2_CRC_START
            if size < OVERHEAD_BYTES or delta < 0 or base < found.next_offset or last >= end_offset:
                found.stop = TailStop.BAD
                break
        else:
            header = _slow_header(found, data, at, end_offset)
            if header is None:
                break
            base, size, batch_epoch, crc = (
                header.base_offset,
                header.size_bytes,
                header.partition_leader_epoch,
                header.crc,
            )
            last, crc_start = header.last_offset, header.crc_start
        if last >= limit:
            found.stop = TailStop.LIMIT
            break
        if at + size > end:
            found.stop, found.wanted_bytes = TailStop.TORN, size
            break
        checked = view[at + crc_start : at + size]
        if (crc32c(checked) if crc_start == _V2_CRC_START else zlib.crc32(checked)) != crc:
            found.stop = TailStop.BAD
            break
        if batch_epoch > epoch:
            epoch = batch_epoch
            found.epochs.append(EpochEntry(epoch, base))
        found.offsets.append(found.next_offset)
        found.places.append(at)
        found.last_at, found.next_offset = at, last + 1
        at += size
    found.size_bytes = at
    return found


def _slow_header(found: WholeBatches, data: bytes, at: int, end_offset: int) -> BatchHeader | None:
    """Parse the header of an old format, or of an incomplete batch; None, with the reason in ``found``, without one."""
    try:
        header = parse_header(data, at, name="", position=at)
    except CorruptRecordError:
        found.stop = TailStop.BAD
        return None
    if header is None:
        found.stop = TailStop.TORN
    elif header.base_offset < found.next_offset or header.last_offset >= end_offset:
        found.stop = TailStop.BAD
        return None
    return header
