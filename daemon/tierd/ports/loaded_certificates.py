"""LoadedCertificates: what was made of TLS settings and their files, and is made anew when either has changed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

from tierd.clock import Clock
from tierd.errors import TierError

CHECK_INTERVAL_S: Final = 1.0
_FileMark = tuple[int, int, int]

S = TypeVar("S")
T = TypeVar("T")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateMaking(Generic[S, T]):
    """Origin of contexts: settings, files, and the function that reads them.

    Attributes:
        settings: return those in force.
        files: of the settings; the first one has the certificate.
        make: reads the files, blocking; raises ``TierError`` if they cannot be used.
        loaded_event: name of the line in the log about files that were read anew.
        unusable_event: name of the line about files that cannot be used.
    """

    settings: Callable[[], S]
    files: Callable[[S], tuple[Path | None, ...]]
    make: Callable[[S], T]
    loaded_event: str
    unusable_event: str


@dataclass(frozen=True, slots=True)
class _Tried(Generic[S]):
    """Settings, and the state of their files, when they were read last."""

    settings: S
    marks: tuple[_FileMark | None, ...]


class LoadedCertificates(Generic[S, T]):
    """Contexts of the files as they are now. Open connections keep the contexts that they began with."""

    def __init__(self, making: CertificateMaking[S, T], *, clock: Clock) -> None:
        """Load nothing yet."""
        self._making = making
        self._clock = clock
        self._tried: _Tried[S] | None = None
        self._contexts: T | None = None
        self._checked_at_s = float("-inf")
        self._turn = asyncio.Lock()
        self.failed_reloads = 0
        """Changes of the files that could not be used, since the start."""
        self._problem = ""

    @property
    def problem(self) -> str:
        """Return why the present files cannot be used; empty while they are in force."""
        return self._problem

    @property
    def loaded(self) -> T:
        """Return the contexts that were read last."""
        assert self._contexts is not None, "load comes first"
        return self._contexts

    async def load(self) -> None:
        """Read the files for the first time.

        Raises:
            TierError: they cannot be used.
        """
        settings = self._making.settings()
        tried = _Tried(settings, await self._marks(settings))
        self._contexts, self._tried = await asyncio.to_thread(self._making.make, settings), tried

    async def latest(self) -> T:
        """Return the contexts for one handshake; files that have changed are read before, at most once a second.

        Files that cannot be used leave the former contexts in force, and are named in the log.
        """
        async with self._turn:
            now_s = self._clock.monotonic_s()
            if now_s - self._checked_at_s >= CHECK_INTERVAL_S:
                self._checked_at_s = now_s
                await self._load_if_changed()
        return self.loaded

    async def _load_if_changed(self) -> None:
        settings = self._making.settings()
        tried = _Tried(settings, await self._marks(settings))
        if tried == self._tried:
            return
        self._tried = tried  # the same files are not tried again
        try:
            self._contexts = await asyncio.to_thread(self._making.make, settings)
        except TierError as error:
            self.failed_reloads += 1
            self._problem = str(error)
            log.warning(self._making.unusable_event, problem=str(error), remedy=error.remedy)
        else:
            self._problem = ""
            certificate_file = self._making.files(settings)[0]
            log.info(self._making.loaded_event, certificate_file=str(certificate_file))

    async def _marks(self, settings: S) -> tuple[_FileMark | None, ...]:
        return await asyncio.to_thread(lambda: tuple(_mark(path) for path in self._making.files(settings)))


def _mark(path: Path | None) -> _FileMark | None:
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return None if status is None else (status.st_mtime_ns, status.st_ino, status.st_size)
