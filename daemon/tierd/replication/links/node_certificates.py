"""NodeCertificates: TLS between daemons, with the certificates that the files have now (push-replication 3.5)."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from cryptography import x509

from tierd.clock import Clock
from tierd.config import PushTlsSettings
from tierd.masking import Masking
from tierd.replication.links.link_errors import PushLinkError
from tierd.replication.links.link_identity import NodeName, certified_name

LOOK_INTERVAL_S: Final = 1.0
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_FileMark = tuple[int, int, int]

log = structlog.get_logger()


class NodeContexts(NamedTuple):
    """Contexts of both directions. Each side has to show a certificate of the authority.

    Attributes:
        own: this daemon's own certificate.
    """

    client: ssl.SSLContext
    server: ssl.SSLContext
    own: x509.Certificate

    @property
    def valid_until(self) -> datetime:
        """Return the end of this daemon's own certificate."""
        return self.own.not_valid_after_utc

    @property
    def name(self) -> NodeName:
        """Return the node that this daemon's own certificate names.

        Raises:
            PushLinkError: it names no node, or several.
        """
        try:
            names = self.own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return certified_name({})
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        return certified_name({"subjectAltName": [("URI", uri) for uri in uris]})


def node_contexts(settings: PushTlsSettings) -> NodeContexts:
    """Read the files, and return the contexts. Blocking.

    Raises:
        PushLinkError: a file is missing, is no PEM, or the key does not belong to the certificate or stays closed.
    """
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    server.num_tickets = 0  # a link lasts for hours: it is not resumed
    server.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    for context in (client, server):
        context.minimum_version = _VERSIONS[settings.min_version]
        own = _load(context, settings)
    return NodeContexts(client, server, own)


def _load(context: ssl.SSLContext, settings: PushTlsSettings) -> x509.Certificate:
    """Read the files into a context, and return this daemon's own certificate."""
    if settings.certificate_file is None or settings.key_file is None or settings.ca_file is None:
        raise PushLinkError("push.tls has no certificate", remedy="set certificate_file, key_file and ca_file")
    # Without a password of ours OpenSSL would ask for one on the terminal.
    secret = settings.key_password.get_secret_value() if settings.key_password is not None else ""
    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: secret)
        own = x509.load_pem_x509_certificate(settings.certificate_file.read_bytes())
    except (OSError, ssl.SSLError, ValueError) as error:
        failure = Masking(secret).error(error)
        raise PushLinkError(
            f"certificate_file {settings.certificate_file} with key_file {settings.key_file} cannot be used: {failure}",
            remedy="let both be readable PEM files that belong together, and set key_password if the key has one",
        ) from failure
    try:
        context.load_verify_locations(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise PushLinkError(
            f"ca_file {settings.ca_file} cannot be used: {error}",
            remedy="let push.tls.ca_file name a readable file of PEM certificates",
        ) from error
    return own


@dataclass(frozen=True, slots=True)
class _LoadedContexts:
    """Contexts with the settings and the state of the files that they were made of; None if that failed."""

    settings: PushTlsSettings
    marks: tuple[_FileMark | None, ...]
    contexts: NodeContexts | None


class NodeCertificates:
    """The TLS of all links of this daemon. Open links keep the certificates that they began with."""

    def __init__(self, settings: Callable[[], PushTlsSettings], *, clock: Clock) -> None:
        """Load nothing yet; ``settings`` returns those in force."""
        self._settings = settings
        self._clock = clock
        self._loaded: _LoadedContexts | None = None
        self._contexts: NodeContexts | None = None
        self._looked_at_s = float("-inf")
        self._turn = asyncio.Lock()
        self.failed_reloads = 0
        """Changes of the files that could not be used, since the start."""
        self._reload_problem = ""

    async def load(self) -> None:
        """Read the files for the first time.

        Raises:
            PushLinkError: they cannot be used.
        """
        self._loaded = await asyncio.to_thread(_load_marked, self._settings())
        self._contexts = self._loaded.contexts

    async def contexts(self) -> NodeContexts:
        """Return the contexts for one handshake; files that have changed are read before, at most once a second.

        Files that cannot be used leave the former contexts in force, and are named in the log.
        """
        assert self._contexts is not None, "load comes before contexts"
        async with self._turn:
            now_s = self._clock.monotonic_s()
            if now_s - self._looked_at_s >= LOOK_INTERVAL_S:
                self._looked_at_s = now_s
                await self._look()
        return self._contexts

    def require_name(self, expected: NodeName) -> None:
        """Require that this daemon's own certificate names it.

        Raises:
            PushLinkError: it names another node, none, or several.
        """
        assert self._contexts is not None, "load comes before require_name"
        if self._contexts.name != expected:
            raise PushLinkError(
                f"push.tls.certificate_file is the certificate of {self._contexts.name}, and this daemon is {expected}",
                remedy=f"issue it with the URI {expected} as a subject alternative name, or correct push.node_id",
            )

    def expired_at(self) -> datetime | None:
        """Return the end of this daemon's certificate if it is over, else None. Peers refuse it then."""
        assert self._contexts is not None, "load comes before expired_at"
        valid_until = self._contexts.valid_until
        return valid_until if valid_until.timestamp() * 1000 < self._clock.now_ms() else None

    @property
    def problem(self) -> str:
        """Return why the certificate is no good, or why a newer one is not in force; empty when all is well."""
        if (expired_at := self.expired_at()) is not None:
            return f"the certificate of this daemon has expired at {expired_at:%Y-%m-%d %H:%M} UTC"
        return self._reload_problem

    async def _look(self) -> None:
        settings = self._settings()
        marks = await asyncio.to_thread(_marks, settings)
        assert self._loaded is not None, "load comes before contexts"
        if (settings, marks) == (self._loaded.settings, self._loaded.marks):
            return
        try:
            self._loaded = await asyncio.to_thread(_load_marked, settings)
        except PushLinkError as error:
            self._loaded = _LoadedContexts(settings, marks, None)  # the same files are not tried again
            self.failed_reloads += 1
            self._reload_problem = str(error)
            log.warning("push_certificate_unusable", problem=str(error), remedy=error.remedy)
        else:
            self._contexts, self._reload_problem = self._loaded.contexts, ""
            log.info("push_certificate_loaded", certificate_file=str(settings.certificate_file))


def _load_marked(settings: PushTlsSettings) -> _LoadedContexts:
    marks = _marks(settings)
    return _LoadedContexts(settings, marks, node_contexts(settings))


def _marks(settings: PushTlsSettings) -> tuple[_FileMark | None, ...]:
    paths = (settings.certificate_file, settings.key_file, settings.ca_file)
    return tuple(None if path is None else _mark(path) for path in paths)


def _mark(path: Path) -> _FileMark | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
