"""ListenerCertificates: the TLS of listeners, with the certificates that the files have now."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from tierd.clock import Clock
from tierd.config import EndpointTlsSettings
from tierd.errors import ListenError
from tierd.masking import Masking

_LOOK_INTERVAL_S: Final = 1.0
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_FileMark = tuple[int, int, int]

log = structlog.get_logger()


def server_context(settings: EndpointTlsSettings) -> ssl.SSLContext:
    """Read the files, and return the context of a listener. Blocking.

    Raises:
        ListenError: a file is missing, is no PEM, or the key does not belong to the certificate or stays closed.
    """
    if settings.certificate_file is None or settings.key_file is None:
        raise ListenError("kafka.tls has no certificate", remedy="set kafka.tls.certificate_file and key_file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # Without a password of ours OpenSSL would ask for one on the terminal.
    secret = settings.key_password.get_secret_value() if settings.key_password is not None else ""
    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: secret)
    except (OSError, ssl.SSLError, ValueError) as error:
        failure = Masking(secret).error(error)
        raise ListenError(
            f"certificate_file {settings.certificate_file} with key_file {settings.key_file} cannot be used: {failure}",
            remedy="let both be readable PEM files that belong together, and set key_password if the key has one",
        ) from failure
    if settings.client_ca_file is not None:
        _load_authorities(context, settings.client_ca_file)
    context.verify_mode = _VERIFY[settings.client_certificates]
    return context


def _load_authorities(context: ssl.SSLContext, client_ca_file: Path) -> None:
    try:
        context.load_verify_locations(cafile=client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ListenError(
            f"client_ca_file {client_ca_file} cannot be used: {error}",
            remedy="let kafka.tls.client_ca_file name a readable file of PEM certificates",
        ) from error


def certificate_end(certificate_file: Path) -> datetime:
    """Return the time at which the first certificate of a file ends to be valid. Blocking.

    Raises:
        ListenError: the file cannot be read, or has no certificate.
    """
    try:
        return x509.load_pem_x509_certificate(certificate_file.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise ListenError(
            f"certificate_file {certificate_file} cannot be read: {error}",
            remedy="let kafka.tls.certificate_file name a readable file of PEM certificates",
        ) from error


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A context with the settings and the state of the files that it was made of."""

    settings: EndpointTlsSettings
    marks: tuple[_FileMark | None, ...]
    context: ssl.SSLContext | None


class ListenerCertificates:
    """The TLS of all listeners of one endpoint."""

    def __init__(self, settings: Callable[[], EndpointTlsSettings], *, clock: Clock) -> None:
        """Load nothing yet; ``settings`` returns those in force."""
        self._settings = settings
        self._clock = clock
        self._loaded: _Loaded | None = None
        self._context: ssl.SSLContext | None = None
        self._looked_at_s = float("-inf")
        self._turn = asyncio.Lock()
        self.failed_reloads = 0
        """Changes of the files that could not be used, since the start."""
        self.problem = ""
        """Why the present files cannot be used; empty while they are in force."""

    async def load(self) -> None:
        """Read the files for the first time.

        Raises:
            ListenError: they cannot be used.
        """
        settings = self._settings()
        self._loaded = await asyncio.to_thread(_load, settings)
        self._context = self._loaded.context

    async def context(self) -> ssl.SSLContext:
        """Return the context for one handshake; files that have changed are read before, at most once a second.

        Files that cannot be used leave the former context in force, and are named in the log.
        """
        assert self._context is not None, "load comes before context"
        async with self._turn:
            now_s = self._clock.monotonic_s()
            if now_s - self._looked_at_s >= _LOOK_INTERVAL_S:
                self._looked_at_s = now_s
                await self._look()
        return self._context

    async def _look(self) -> None:
        settings = self._settings()
        marks = await asyncio.to_thread(_marks, settings)
        assert self._loaded is not None, "load comes before context"
        if (settings, marks) == (self._loaded.settings, self._loaded.marks):
            return
        try:
            self._loaded = await asyncio.to_thread(_load, settings)
        except ListenError as error:
            self._loaded = _Loaded(settings, marks, None)  # the same files are not tried again
            self.failed_reloads += 1
            self.problem = str(error)
            log.warning("endpoint_certificate_unusable", problem=str(error), remedy=error.remedy)
        else:
            self._context, self.problem = self._loaded.context, ""
            log.info("endpoint_certificate_loaded", certificate_file=str(settings.certificate_file))


def _load(settings: EndpointTlsSettings) -> _Loaded:
    marks = _marks(settings)
    return _Loaded(settings, marks, server_context(settings))


def _marks(settings: EndpointTlsSettings) -> tuple[_FileMark | None, ...]:
    paths = (settings.certificate_file, settings.key_file, settings.client_ca_file)
    return tuple(None if path is None else _mark(path) for path in paths)


def _mark(path: Path) -> _FileMark | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
