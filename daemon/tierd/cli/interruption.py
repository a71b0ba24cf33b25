"""Signals that end a command between two steps, and never within one."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Interruption:
    """SIGINT and SIGTERM raise ``KeyboardInterrupt`` inside of ``allowed``: at once, or when it is entered next."""

    def __init__(self) -> None:
        self._is_allowed = False
        self._is_wanted = False

    @classmethod
    @contextlib.contextmanager
    def installed(cls) -> Iterator["Interruption"]:
        """Take over the two signals for a while."""
        interruption = cls()
        before = {number: signal.signal(number, interruption._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield interruption
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """A stretch that may be interrupted."""
        self._is_allowed = True
        try:
            if self._is_wanted:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_allowed = False

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._is_wanted = True
        if self._is_allowed:
            self._is_allowed = False
            raise KeyboardInterrupt
