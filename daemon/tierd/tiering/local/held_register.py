"""HeldRegister: the held segments of each partition, the kinds of their holds, and the sums."""

import threading
from dataclasses import dataclass
from pathlib import Path

from tierd.model import PartitionKey
from tierd.tiering.local.held_segment import HeldSegment, HoldKind


@dataclass(frozen=True, slots=True)
class LogDirHold:
    """Kind of the holds in one log dir, and why they are not links."""

    log_dir: Path
    kind: HoldKind
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HoldStatistics:
    """Present holds. ``unheld_segments`` are queued without protection, ``unheld_reason`` says why."""

    segments: int
    bytes: int
    descriptors: int
    unheld_segments: int
    unheld_reason: str
    log_dirs: tuple[LogDirHold, ...]


class HeldRegister:
    """Register of held segments, with sums; it touches no file. Safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything below
        self._held: dict[PartitionKey, dict[int, HeldSegment]] = {}
        self._unheld: dict[PartitionKey, tuple[int, str]] = {}
        self._log_dirs: dict[Path, LogDirHold] = {}
        self._bytes = 0
        self._descriptors = 0

    @property
    def bytes(self) -> int:
        """Return the bytes of all held log files."""
        with self._lock:
            return self._bytes

    @property
    def descriptors(self) -> int:
        """Return the number of descriptors that all holds keep open."""
        with self._lock:
            return self._descriptors

    def statistics(self) -> HoldStatistics:
        """Return the sums over all partitions, and the kind of the holds in each log dir."""
        with self._lock:
            reasons = [reason for count, reason in self._unheld.values() if count]
            return HoldStatistics(
                segments=sum(map(len, self._held.values())),
                bytes=self._bytes,
                descriptors=self._descriptors,
                unheld_segments=sum(count for count, _ in self._unheld.values()),
                unheld_reason=reasons[0] if reasons else "",
                log_dirs=tuple(self._log_dirs[path] for path in sorted(self._log_dirs)),
            )

    def decided(self, log_dir: Path) -> LogDirHold | None:
        """Return the kind of the holds in a log dir; None before the first hold."""
        with self._lock:
            return self._log_dirs.get(log_dir)

    def decide(self, decided: LogDirHold) -> LogDirHold | None:
        """Set the kind of the holds in a log dir from now on; return the previous decision."""
        with self._lock:
            previous = self._log_dirs.get(decided.log_dir)
            self._log_dirs[decided.log_dir] = decided
        return previous

    def partitions(self) -> list[PartitionKey]:
        """Return the partitions with a held segment."""
        with self._lock:
            return [key for key, held in self._held.items() if held]

    def of(self, key: PartitionKey) -> tuple[HeldSegment, ...]:
        """Return the held segments of a partition, ascending."""
        with self._lock:
            return tuple(held for _, held in sorted(self._held.get(key, {}).items()))

    def get(self, key: PartitionKey, base_offset: int) -> HeldSegment | None:
        """Return the held segment that begins at ``base_offset``; None without one."""
        with self._lock:
            return self._held.get(key, {}).get(base_offset)

    def latest(self, key: PartitionKey) -> HeldSegment | None:
        """Return the segment of a partition that was added last; None without one."""
        with self._lock:
            return next(reversed(self._held.get(key, {}).values()), None)

    def concerns(self, key: PartitionKey) -> bool:
        """Return True if anything of a partition is held, or should be and is not."""
        with self._lock:
            return bool(self._held.get(key)) or self._unheld.get(key, (0, ""))[0] > 0

    def add(self, key: PartitionKey, held: HeldSegment) -> HeldSegment | None:
        """Add a segment; return the segment that it replaces, None without one."""
        with self._lock:
            segments = self._held.setdefault(key, {})
            previous = segments.get(held.base_offset)
            segments[held.base_offset] = held
            self._bytes += held.size_bytes - (previous.size_bytes if previous else 0)
            self._descriptors += len(held.descriptors) - (len(previous.descriptors) if previous else 0)
        return previous

    def remove(self, key: PartitionKey, held: HeldSegment) -> bool:
        """Remove this very segment; return False when it was removed already, or another is in its place."""
        with self._lock:
            if self._held.get(key, {}).get(held.base_offset) is not held:
                return False
            del self._held[key][held.base_offset]
            self._bytes -= held.size_bytes
            self._descriptors -= len(held.descriptors)
        return True

    def note_unheld(self, key: PartitionKey, count: int, reason: str) -> None:
        """Note how many rolled segments of a partition are without protection now, and why."""
        with self._lock:
            self._unheld[key] = (count, reason)

    def forget(self, key: PartitionKey) -> None:
        """Remove everything of a partition that is gone."""
        with self._lock:
            self._held.pop(key, None)
            self._unheld.pop(key, None)

    def clear(self) -> list[HeldSegment]:
        """Remove all segments; return them."""
        with self._lock:
            held = [segment for segments in self._held.values() for segment in segments.values()]
            self._held.clear()
            self._bytes = self._descriptors = 0
        return held
