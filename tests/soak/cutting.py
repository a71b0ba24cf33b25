"""Cut of the log of a stopped broker, as a lost page cache does: the end of the log was never on the disk."""

import struct
from pathlib import Path

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_BATCH_PREFIX = struct.Struct(">qi")  # base offset, length of the rest
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def cut_log_back(directory: Path, *, segments: int, at_least: int) -> int:
    """Cut the log of a stopped broker in the middle of a rolled segment; return the new log end, exclusive.

    Args:
        directory: the partition's directory.
        segments: how many rolled segments lose records, counted from the newest one.
        at_least: the log keeps everything below this offset, and the first batch of the segment that is cut.
    """
    bases = sorted(int(log.stem) for log in directory.glob("*.log"))
    chosen = max(1, len(bases) - 1 - segments)
    while chosen < len(bases) - 1 and bases[chosen] < at_least:
        chosen += 1
    log = directory / f"{bases[chosen]:020d}.log"
    end = _keep_half(log, bases[chosen])
    for file in directory.iterdir():
        base = int(file.stem) if file.suffix in _SUFFIXES and file.stem.isdigit() else -1
        is_later = base > bases[chosen] or (base == bases[chosen] and file.suffix in (".index", ".timeindex"))
        if is_later:
            file.unlink()
    _lower_recovery_point(directory, bases[chosen])
    return end


def _keep_half(log: Path, base: int) -> int:
    """Truncate a segment file behind the first half of its batches; return the offset behind the last one kept."""
    data = log.read_bytes()
    positions, ends, position = [0], [base], 0
    while position + _BATCH_PREFIX.size <= len(data):
        first, length = _BATCH_PREFIX.unpack_from(data, position)
        if length == 0:  # preallocated, not written yet
            break
        last = first + _LAST_OFFSET_DELTA.unpack_from(data, position + _LAST_OFFSET_DELTA_AT)[0]
        position += _BATCH_PREFIX.size + length
        positions.append(position)
        ends.append(last + 1)
    kept = max(1, len(positions) // 2)
    with log.open("r+b") as file:
        file.truncate(positions[min(kept, len(positions) - 1)])
    return ends[min(kept, len(ends) - 1)]


def _lower_recovery_point(directory: Path, offset: int) -> None:
    file = directory.parent / _RECOVERY_POINTS
    version, count, *entries = file.read_text().splitlines()
    topic, _, partition = directory.name.rpartition("-")
    prefix = f"{topic} {partition} "
    lowered = [f"{prefix}{offset}" if entry.startswith(prefix) else entry for entry in entries]
    file.write_text("\n".join([version, count, *lowered]) + "\n")
