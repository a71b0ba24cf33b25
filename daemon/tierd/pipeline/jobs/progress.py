"""RunProgress: how far a run is, told by whoever works and asked for by the thread that tells the leader."""

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Stage(StrEnum):
    """What a run does, in this order; stages for which there is nothing are left out."""

    STARTING = "starting"
    AUDIT = "auditing"
    ERASURE = "looking for keys to erase"
    KEYS = "looking for the latest records"
    REWRITE = "rewriting"


class Reached(NamedTuple):
    """How many bytes of inputs are done in a stage, of how many."""

    stage: Stage
    done: int
    total: int


class RunProgress:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached = Reached(Stage.STARTING, 0, 0)
        self._measure: Callable[[], int] | None = None

    def begin(self, stage: Stage, total: int, measure: Callable[[], int] | None = None) -> None:
        """Begin a stage; ``measure`` tells what is done, where nobody calls ``advance``."""
        with self._lock:
            self._reached, self._measure = Reached(stage, 0, total), measure

    def advance(self, size_bytes: int) -> None:
        """Count inputs as done in this stage."""
        with self._lock:
            stage, done, total = self._reached
            self._reached = Reached(stage, min(done + size_bytes, total), total)

    def reached(self) -> Reached:
        """How far it is now."""
        with self._lock:
            stage, done, total = self._reached
            return Reached(stage, min(self._measure(), total) if self._measure else done, total)
