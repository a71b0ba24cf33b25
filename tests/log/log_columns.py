"""The records of a piece of a log as columns."""

from collections.abc import Iterator

from tierd.kernels import STEP_RECORDS
from tierd.log.records.compression import MAX_DECOMPRESSED_BYTES
from tierd.log.records.log_columns import iter_piece_columns
from tierd.log.records.record_columns import RecordColumns


def iter_log_columns(
    data: bytes | memoryview,
    *,
    name: str,
    position: int = 0,
    check_crc: bool = True,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    step_records: int = STEP_RECORDS,
) -> Iterator[RecordColumns]:
    """Decode one piece; an incomplete batch at its end is left out, and a legacy entry raises ``ValueError``."""
    for found in iter_piece_columns(
        (data,),
        name=name,
        position=position,
        check_crc=check_crc,
        may_be_torn=True,
        max_bytes=max_bytes,
        step_records=step_records,
    ):
        if not isinstance(found, RecordColumns):
            raise ValueError(f"an entry of magic {found.magic} has no columns")  # noqa: TRY004 - it is the data
        yield found
