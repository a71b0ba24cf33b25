"""RunProgress: set by the threads that work, read by the thread that reports to the leader."""

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Stage(StrEnum):
    """Stage of a run, in this order; stages for which there is nothing are left out."""

    STARTING = "starting"
    AUDIT = "auditing"
    ERASURE = "looking for keys to erase"
    KEYS = "looking for the latest records"
    REWRITE = "rewriting"


class Reached(NamedTuple):
    """Bytes of inputs that are done in a stage, and their total."""

    stage: Stage
    done: int
    total: int


class JobProgress:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached = Reached(Stage.STARTING, 0, 0)
        self._measure: Callable[[], int] | None = None

    def begin(self, stage: Stage, total: int, measure: Callable[[], int] | None = None) -> None:
        """Begin a stage; ``measure`` returns what is done, where ``advance`` is not called."""
        with self._lock:
            self._reached, self._measure = Reached(stage, 0, total), measure

    def advance(self, size_bytes: int) -> None:
        """Count inputs as done in this stage."""
        with self._lock:
            stage, done, total = self._reached
            self._reached = Reached(stage, min(done + size_bytes, total), total)

    def reached(self) -> Reached:
        """Return the present progress."""
        with self._lock:
            stage, done, total = self._reached
            return Reached(stage, min(self._measure(), total) if self._measure else done, total)
