"""Targets: a partition directory of any bytes, loaded, read and closed; and a log that is given any bytes to append.

An input of the load is a header of three bytes (flags, recovery point, log start) and then files: a byte that picks
the name, two bytes of length, content.
"""

from contextlib import suppress
from pathlib import Path

from tests.fakes.simulated_disk import SimulatedDisk
from tests.fuzz.decoders import with_checksums, with_snapshot_checksum
from tests.fuzz.target import Target
from tests.log.batches import legacy
from tests.log.logs import NOW_MS, TransactionalProducer, end_marker, follow, lead, open_log, records
from tierd.errors import CorruptRecordError, LogError, TierError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import Producer
from tierd.log.records.record_batch import iter_batches

LOG_DIR = Path("/logs")
DIRECTORY = LOG_DIR / "orders-0"
CONFIG = LogConfig(segment_index_bytes=1024, index_interval_bytes=100)
STRICT = LogConfig(segment_index_bytes=1024, index_interval_bytes=100, strict_recovery=True)

_BASES = ("00000000000000000000", "00000000000000000005", "00000000000000000010")
NAMES = (
    *(base + kind for base in _BASES for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
    *(_BASES[1] + kind for kind in (".log.swap", ".index.swap", ".log.cleaned", ".log.deleted", ".snapshot.deleted")),
    "00000000000000000015.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "leader-epoch-checkpoint.tmp",
)

IS_CLEAN = 1
FIX_CHECKSUMS = 2
IS_STRICT = 4


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the files of an input; the last one of a name counts, and a length beyond the end is cut."""
    files: dict[str, bytes] = {}
    at = 3
    while at + 3 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 3], "big")
        files[NAMES[data[at] % len(NAMES)]] = data[at + 3 : at + 3 + size]
        at += 3 + size
    return files


def pack(files: dict[str, bytes], *, flags: int, recovery_point: int = 0, log_start: int = 0) -> bytes:
    """Return the input that ``unpack`` turns into ``files``."""
    pieces = [bytes([flags, recovery_point, log_start])]
    for name, content in files.items():
        pieces += [bytes([NAMES.index(name)]), len(content).to_bytes(2, "big"), content]
    return b"".join(pieces)


def _fixed(name: str, content: bytes) -> bytes:
    if ".log" in name:
        return with_checksums(content)
    return with_snapshot_checksum(content) if ".snapshot" in name else content


def _write(files: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk()
    for path in (LOG_DIR, DIRECTORY):
        disk.make_directory(path)
    for name, content in files.items():
        file = disk.open(DIRECTORY / name, create=True)
        file.write(0, [content])
        file.close()
    return disk


def load(data: bytes) -> None:
    """Load any directory: a log that loads can be read, closed, and loaded again with the same content."""
    if len(data) < 3:
        return
    flags, recovery_point, log_start = data[:3]
    files = unpack(data)
    if flags & FIX_CHECKSUMS:
        files = {name: _fixed(name, content) for name, content in files.items()}
    disk = _write(files)
    if flags & IS_STRICT:
        with suppress(LogError):
            _open(disk, clean=bool(flags & IS_CLEAN), recovery_point=recovery_point, config=STRICT).close_handles()
        return
    try:
        log = _open(disk, clean=bool(flags & IS_CLEAN), recovery_point=recovery_point, log_start=log_start)
    except LogError:
        return
    _check(log)
    found = (log.log_start_offset, log.log_end_offset)
    try:
        log.close()
    except LogError:
        return
    again = _open(disk, clean=True, recovery_point=log.log_end_offset, log_start=log.log_start_offset)
    assert (again.log_start_offset, again.log_end_offset) == found
    again.close_handles()


def _open(
    disk: SimulatedDisk, *, clean: bool, recovery_point: int, log_start: int = 0, config: LogConfig = CONFIG
) -> UnifiedLog:
    return open_log(
        LOG_DIR, disk=disk, config=config, clean=clean, recovery_point=recovery_point, log_start_offset=log_start
    )


def _check(log: UnifiedLog) -> None:
    assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
    assert log.last_stable_offset <= log.high_watermark
    offset = log.log_start_offset
    with suppress(TierError):
        while fetched := log.read(offset, max_bytes=1 << 16, isolation=None).records:
            before = offset
            for batch in iter_batches(fetched, name="fetched"):
                offset = max(offset, batch.last_offset + 1)
                with suppress(CorruptRecordError):
                    for _ in batch.records(max_bytes=1 << 20):
                        pass
            if offset == before:
                break


def append(data: bytes) -> None:
    """Append any bytes: accepted sets survive a crash, and refused ones leave no trace."""
    if not data:
        return
    disk = _write({})
    log = _open(disk, clean=True, recovery_point=0)
    follow(log, records(2, epoch=0))
    batches = with_checksums(data[1:]) if data[0] & FIX_CHECKSUMS else data[1:]
    before = log.log_end_offset
    with suppress(LogError):
        if data[0] & IS_CLEAN:
            lead(log, batches, epoch=3)
        else:
            follow(log, batches)
    assert log.log_end_offset >= before
    after = max(log.log_end_offset, log.segments[-1].base_offset)  # a late refusal may follow a roll
    _check(log)
    log.close_handles()
    again = _open(disk, clean=False, recovery_point=0)
    assert again.log_end_offset == after
    _check(again)
    again.close_handles()


def _append_seeds() -> list[bytes]:
    follows = [
        records(3, base_offset=2, epoch=1),
        records(1, base_offset=2) + records(2, base_offset=3, producer=Producer(1, 0, 0), transactional=True),
        records(1, base_offset=9, codec=Compression.ZSTD),
        legacy(1, 2, b"k", b"v") + legacy(1, 3, b"k", b"v"),
        end_marker(7, commit=False, base_offset=2),
    ]
    leads = [records(3), records(2, producer=Producer(1, 0, 0)), legacy(0, 0, b"k", b"v")]
    return [bytes([FIX_CHECKSUMS]) + data for data in follows] + [
        bytes([FIX_CHECKSUMS | IS_CLEAN]) + data for data in leads
    ]


def _seeds() -> list[bytes]:
    disk = _write({})
    log = open_log(LOG_DIR, disk=disk, config=CONFIG)
    log.assign_leader_epoch(0, 0)
    lead(log, records(5))
    log.roll(now_ms=NOW_MS)
    producer = TransactionalProducer(log, 7)
    producer.write(3)
    lead(log, records(1))
    producer.end(commit=False)
    log.roll(now_ms=NOW_MS)
    lead(log, records(2))
    TransactionalProducer(log, 8).write(3)
    log.update_high_watermark(log.log_end_offset)
    log.close()
    files = {path.name: content for path, content in disk.snapshot(DIRECTORY).items()}
    assert set(files) <= set(NAMES), sorted(files)
    swapped = {name.replace("5.log", "5.log.swap"): content for name, content in files.items()}
    logs_only = {name: content for name, content in files.items() if name.endswith(".log")}
    return [
        pack(files, flags=0),
        pack(files, flags=FIX_CHECKSUMS),
        pack(files, flags=FIX_CHECKSUMS, recovery_point=10),
        pack(files, flags=IS_CLEAN, recovery_point=15),
        pack(files, flags=IS_CLEAN | FIX_CHECKSUMS, recovery_point=15, log_start=6),
        pack(files, flags=IS_CLEAN | IS_STRICT, recovery_point=15),
        pack(logs_only, flags=FIX_CHECKSUMS),
        pack(swapped, flags=FIX_CHECKSUMS),
    ]


TARGETS = [Target("log-load", load, _seeds), Target("log-append", append, _append_seeds)]
