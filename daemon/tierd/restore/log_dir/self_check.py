"""Self-check of a staged directory: our own loader opens it, and finds batches by offset and by time (4.2, step 14)."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from tierd.errors import DamagedLogError
from tierd.log import (
    BatchHeader,
    LoadRequest,
    LogConfig,
    OfflineFlag,
    OsDisk,
    UnifiedLog,
    iter_headers,
    load_log,
    open_source,
    parse_header,
    with_data,
)
from tierd.restore.log_dir.segment_staging import StagedSegment
from tierd.restore.log_dir.staged_files import link_durably, make_empty, write_durably

_READ_BYTES = 64 << 10  # the first batch is returned whole, however large
_NO_PRODUCER_EXPIRES_MS = 0


def check_loadable(
    directory: Path, scratch: Path, segments: tuple[StagedSegment, ...], *, log_start_offset: int, log_end_offset: int
) -> None:
    """Load a copy of a staged directory as a broker does after a crash; read its first, a middle and its last batch.

    The logs of the copy are links, which a load does not change; all other files are copies. Blocking.

    Args:
        directory: staged, with its last name.
        scratch: for the copy; removed afterwards.
        segments: of the directory.
        log_start_offset: that the loaded log must have.
        log_end_offset: that the loaded log must have.

    Raises:
        DamagedLogError: the loaded log is another one than was restored.
        LogError: it cannot be loaded.
        OSError: the copy cannot be written.
    """
    make_empty(scratch)
    copy = scratch / directory.name
    make_empty(copy)
    try:
        for path in directory.iterdir():
            if path.suffix == ".log" and path.stat().st_size:
                link_durably(path, copy / path.name)
            else:
                write_durably(copy / path.name, path.read_bytes())
        request = LoadRequest(config=LogConfig(), log_start_offset=log_start_offset, recovery_point=log_end_offset)
        log = load_log(OsDisk(), copy, request, now_ms=_NO_PRODUCER_EXPIRES_MS, offline=OfflineFlag(scratch))
        try:
            problems = list(_problems(log, segments, log_start_offset, log_end_offset))
        finally:
            log.close_handles()
    finally:
        shutil.rmtree(scratch)
    if problems:
        raise DamagedLogError(
            directory,
            problems,
            remedy="report this with the files in the stage: the restored log is not the planned one",
        )


def _problems(
    log: UnifiedLog, segments: tuple[StagedSegment, ...], log_start_offset: int, log_end_offset: int
) -> Iterator[str]:
    found = (log.log_start_offset, log.log_end_offset)
    if found != (log_start_offset, log_end_offset):
        yield f"it loads with offsets {found[0]} to {found[1]}, not {log_start_offset} to {log_end_offset}"
        return
    if segments:
        middle = segments[len(segments) // 2]
        for offset in (max(segments[0].base_offset, log_start_offset), middle.base_offset, segments[-1].end_offset - 1):
            yield from _problems_at(log, segments, max(offset, log_start_offset))


def _problems_at(log: UnifiedLog, segments: tuple[StagedSegment, ...], offset: int) -> Iterator[str]:
    data = log.read(offset, max_bytes=_READ_BYTES, isolation=None).records
    header = parse_header(data, 0, name=log.directory.name, position=0)
    if header is None or header.last_offset < offset:
        yield f"offset {offset} is not found"
        return
    batch = with_data(header, memoryview(data)[: header.size_bytes])
    if not batch.is_valid:
        yield f"the batch at offset {offset} has a wrong checksum"
        return
    readable = (record.timestamp_ms for record in batch.records() if record.offset >= log.log_start_offset)
    timestamp_ms = max(readable, default=-1)
    if timestamp_ms < 0:
        return
    by_time = log.offset_for_timestamp(timestamp_ms)
    is_found = by_time is not None and by_time.offset <= header.last_offset
    if not is_found and not _is_hidden(segments, header, timestamp_ms):
        yield f"timestamp {timestamp_ms} of the batch at offset {header.base_offset} is not found by time"


def _is_hidden(segments: tuple[StagedSegment, ...], batch: BatchHeader, timestamp_ms: int) -> bool:
    """Return True if a search by time ends before ``batch``, in a segment that has no such record.

    Brokers search one segment: the first whose largest timestamp is not smaller (Kafka: fetchOffsetByTimestamp). That
    timestamp may be of a batch that compaction has emptied, or of records below the log start. A segment without
    timestamps counts as written now.
    """
    for segment in segments:
        with open_source(segment.log) as source:
            largest_ms = -1
            for header in iter_headers(source, may_be_torn=False):
                if header.base_offset >= batch.base_offset:
                    return False
                largest_ms = max(largest_ms, header.max_timestamp_ms)
                if largest_ms >= timestamp_ms:
                    return True
        if largest_ms < 0:
            return True
    return False
