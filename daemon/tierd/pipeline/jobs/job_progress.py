"""JobProgress: the progress of a run, set by the threads that work, read by the thread that reports to the leader."""

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
    """Progress in a stage: bytes of inputs that are done, and the total of the stage."""

    stage: Stage
    done: int
    total: int


class JobProgress:
    """Progress of a run. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached = Reached(Stage.STARTING, 0, 0)
        self._measure: Callable[[], int] | None = None

    def begin(self, stage: Stage, total: int, measure: Callable[[], int] | None = None) -> None:
        """Begin a stage of ``total`` bytes; ``measure`` returns the bytes done, in a stage without ``advance``."""
        with self._lock:
            self._reached, self._measure = Reached(stage, 0, total), measure

    def advance(self, size_bytes: int) -> None:
        """Count bytes of inputs as done in this stage."""
        with self._lock:
            stage, done, total = self._reached
            self._reached = Reached(stage, min(done + size_bytes, total), total)

    def reached(self) -> Reached:
        """Return the present progress."""
        with self._lock:
            stage, done, total = self._reached
            return Reached(stage, min(self._measure(), total) if self._measure else done, total)
