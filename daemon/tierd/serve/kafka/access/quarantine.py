"""Quarantine: clients that are held back after a restore, until a person releases them.

::

    configured ──► held ── release ──► released, also after a restart
                    ▲                     │
                    └──────── hold ───────┘

The file holds what was released: what it does not name is held. If it is lost or damaged, everything is held again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from tierd.clock import Clock
from tierd.config import EndpointQuarantineSettings, full_match
from tierd.errors import StateDirError
from tierd.files import open_to_read, replace_privately
from tierd.serve.control_answers import QuarantineAnswer
from tierd.serve.control_protocol import VerbHandler
from tierd.serve.control_requests import HOLD_ENDPOINT, RELEASE_ENDPOINT, QuarantineRequest

QUARANTINE_FILE: Final = "endpoint-quarantine.json"
_MAX_BYTES: Final = 1 << 20
_FORMAT: Final = 1

log = structlog.get_logger()


class QuarantineRelease(BaseModel):
    """Release from the quarantine, as its file has it.

    Attributes:
        format: of the file.
        listeners: names of the listeners whose clients are no longer held.
        principals: patterns, as the configuration has them, that no longer hold.
        by: the person, as far as it is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int = _FORMAT
    listeners: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    released_at_ms: int = 0
    by: str = ""


@dataclass(frozen=True, slots=True)
class HeldClients:
    """Listeners and patterns of principals that are held back."""

    listeners: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return True if anything is held back."""
        return bool(self.listeners or self.principals)

    def include(self, *, listener: str, principal: str) -> bool:
        """Return True if a client of this listener, with this principal, is held back."""
        return listener in self.listeners or full_match(self.principals, principal)


def held_clients(settings: EndpointQuarantineSettings, release: QuarantineRelease) -> HeldClients:
    """Return what is configured and not released."""
    return HeldClients(
        tuple(name for name in settings.listeners if name not in release.listeners),
        tuple(pattern for pattern in settings.principals if pattern not in release.principals),
    )


def read_release(path: Path) -> QuarantineRelease:
    """Return the release that a file has; an empty one if there is no file, or it is damaged. Blocking."""
    try:
        with open_to_read(path) as file:
            return QuarantineRelease.model_validate_json(file.read(_MAX_BYTES))
    except FileNotFoundError:
        return QuarantineRelease()
    except OSError as error:
        problem = error.strerror or str(error)
    except ValidationError:
        problem = "it is no file of tierd"
    log.error("quarantine_file_unusable", path=str(path), problem=problem, remedy="run tierd endpoint release")
    return QuarantineRelease()


class Quarantine:
    """Quarantine of one endpoint."""

    def __init__(
        self,
        settings: Callable[[], EndpointQuarantineSettings],
        path: Path,
        *,
        release: QuarantineRelease,
        clock: Clock,
    ) -> None:
        """Hold what ``settings``, asked at each question, has and ``release``, as read from ``path``, has not."""
        self._settings = settings
        self._path = path
        self._release = release
        self._clock = clock
        self._turn = asyncio.Lock()

    @property
    def held(self) -> HeldClients:
        """Return what is held back now."""
        return held_clients(self._settings(), self._release)

    def is_held(self, *, listener: str, principal: str) -> bool:
        """Return True if a client of this listener, with this principal, is held back."""
        settings = self._settings()
        if not (settings.listeners or settings.principals):
            return False
        return held_clients(settings, self._release).include(listener=listener, principal=principal)

    async def release(self, *, by: str = "") -> HeldClients:
        """Let all clients go that are configured to be held, durably, and return what was held until now.

        Raises:
            StateDirError: the file cannot be written; the clients are still held.
        """
        async with self._turn:
            was_held, settings = self.held, self._settings()
            await self._write(
                QuarantineRelease(
                    listeners=settings.listeners,
                    principals=settings.principals,
                    released_at_ms=self._clock.now_ms(),
                    by=by,
                )
            )
        log.warning("quarantine_released", listeners=was_held.listeners, principals=was_held.principals, by=by)
        return was_held

    async def hold(self) -> HeldClients:
        """Hold all clients again that are configured to be held, durably, and return what is held now.

        Raises:
            StateDirError: the file cannot be written; nothing has changed.
        """
        async with self._turn:
            await self._write(QuarantineRelease())
        held = self.held
        log.warning("quarantine_begun", listeners=held.listeners, principals=held.principals)
        return held

    async def _write(self, release: QuarantineRelease) -> None:
        try:
            await asyncio.to_thread(replace_privately, self._path, release.model_dump_json().encode())
        except OSError as error:
            raise StateDirError(
                f"{self._path} cannot be written: {error.strerror or error}", remedy="free disk space, then try again"
            ) from error
        self._release = release


async def open_quarantine(
    settings: Callable[[], EndpointQuarantineSettings], *, state_dir: Path, clock: Clock
) -> Quarantine:
    """Return the quarantine whose file is in ``state_dir``; ``settings`` returns those in force."""
    path = state_dir / QUARANTINE_FILE
    release = await asyncio.to_thread(read_release, path)
    return Quarantine(settings, path, release=release, clock=clock)


def quarantine_handlers(quarantine: Quarantine) -> tuple[VerbHandler, ...]:
    """Return the handlers of a daemon with a read endpoint."""

    async def release(request: QuarantineRequest) -> QuarantineAnswer:
        return _answer(await quarantine.release(by=request.by))

    async def hold(_request: QuarantineRequest) -> QuarantineAnswer:
        return _answer(await quarantine.hold())

    return (RELEASE_ENDPOINT.handled_by(release), HOLD_ENDPOINT.handled_by(hold))


def _answer(clients: HeldClients) -> QuarantineAnswer:
    return QuarantineAnswer(listeners=clients.listeners, principals=clients.principals)
