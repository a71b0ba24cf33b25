"""``tierd log read``: print the records of a partition directory, without a configuration."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tierd.cli.options import JsonOption, PartitionDirectoryArgument
from tierd.cli.output.printing import print_bytes
from tierd.cli.output.record_lines import as_text_line
from tierd.cli.session import log_to_stderr
from tierd.errors import PartitionNameError, SegmentChangedError
from tierd.log import (
    LocalLog,
    PartitionDirectory,
    Record,
    as_json_line,
    committed_batches,
    data_batches,
    find_log_end_offset,
    identify_directory,
    iter_batches,
    last_stable_offset,
    scan_partition,
)

_PIECE_BYTES = 1 << 20
_WRITTEN_AT_ONCE_BYTES = 256 * 1024
_LISTINGS = 20
_PAUSE_S = 0.05


def read(
    directory: PartitionDirectoryArgument,
    *,
    from_offset: Annotated[
        int | None, typer.Option("--from", min=0, metavar="O", help="First offset; default: the log start.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to", min=0, metavar="O", help="Last offset, inclusive; default: the log end.")
    ] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out aborted and undecided transactions.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print the records of a partition directory up to its log end, also above the high watermark.

    The directory is neither changed nor locked, so a broker may use it. After a crash, records are read up to the first
    damage. The lines are those of tierd cat.

    Example: tierd log read /srv/copy/orders-0 --from 1000 --to 1099 --json
    """
    log_to_stderr()
    line_of = as_json_line if json else as_text_line
    pending = bytearray()
    try:
        for record in _records(directory, from_offset, to_offset, committed=committed):
            pending += line_of(record)
            if len(pending) >= _WRITTEN_AT_ONCE_BYTES:
                _write(pending)
    finally:
        _write(pending)  # print the records that were read before a failure, too


def _records(directory: Path, from_offset: int | None, to_offset: int | None, *, committed: bool) -> Iterator[Record]:
    """Yield the records. When a broker has changed the files, list them again and go on behind the last record."""
    found = identify_directory(directory)
    if found is None:
        raise PartitionNameError(
            f"{directory}: no partition directory", remedy="name a directory such as /var/lib/kafka/data/orders-0"
        )
    for _ in range(_LISTINGS):
        try:
            for record in _listed_records(found, from_offset, to_offset, committed=committed):
                yield record
                from_offset = record.offset + 1
        except SegmentChangedError:
            time.sleep(_PAUSE_S)
        else:
            return
    raise SegmentChangedError(f"{directory}: its files change again and again", remedy="read again")


def _listed_records(
    directory: PartitionDirectory, from_offset: int | None, to_offset: int | None, *, committed: bool
) -> Iterator[Record]:
    scan = scan_partition(directory)
    end = find_log_end_offset(scan)
    stable = last_stable_offset(scan, high_watermark=end) if committed else end
    log = LocalLog(scan, high_watermark=end, last_stable_offset=stable)
    limit = min(stable, end if to_offset is None else to_offset + 1)
    offset = log.log_start_offset if from_offset is None else from_offset
    while offset < limit or not log.log_start_offset <= offset <= end:
        data = log.read(offset, max_bytes=_PIECE_BYTES)
        unchecked = list(iter_batches(data, name=str(directory.path), check_crc=False))
        if not unchecked:
            return
        upper = unchecked[-1].last_offset + 1
        # One at a time: the batches before a damaged one are sound.
        batches = iter_batches(data, name=str(directory.path))
        wanted = (
            committed_batches(batches, log.aborted_transactions(unchecked[0].base_offset, upper))
            if committed
            else data_batches(batches)
        )
        for batch in wanted:
            for record in batch.records():
                if offset <= record.offset < limit:
                    yield record
            if batch.last_offset + 1 >= limit:
                return
        offset = upper


def _write(pending: bytearray) -> None:
    print_bytes(bytes(pending))
    pending.clear()
