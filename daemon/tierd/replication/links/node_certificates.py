"""NodeCertificates: TLS between daemons, with the certificates that the files have now (push-replication 3.5)."""

import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509

from tierd.clock import Clock
from tierd.config import PushTlsSettings
from tierd.masking import Masking
from tierd.ports import CertificateMaking, LoadedCertificates
from tierd.replication.links.link_errors import PushLinkError
from tierd.replication.links.link_identity import NodeName, certified_name

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


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


class NodeCertificates(LoadedCertificates[PushTlsSettings, NodeContexts]):
    """The TLS of all links of this daemon."""

    def __init__(self, settings: Callable[[], PushTlsSettings], *, clock: Clock) -> None:
        """Load nothing yet; ``settings`` returns those in force."""
        making = CertificateMaking(
            settings=settings,
            files=_files,
            make=node_contexts,
            loaded_event="push_certificate_loaded",
            unusable_event="push_certificate_unusable",
        )
        super().__init__(making, clock=clock)

    def require_name(self, expected: NodeName) -> None:
        """Require that this daemon's own certificate names it.

        Raises:
            PushLinkError: it names another node, none, or several.
        """
        name = self.loaded.name
        if name != expected:
            raise PushLinkError(
                f"push.tls.certificate_file is the certificate of {name}, and this daemon is {expected}",
                remedy=f"issue it with the URI {expected} as a subject alternative name, or correct push.node_id",
            )

    def expired_at(self) -> datetime | None:
        """Return the end of this daemon's certificate if it is over, else None. Peers refuse it then."""
        valid_until = self.loaded.valid_until
        return valid_until if valid_until.timestamp() * 1000 < self._clock.now_ms() else None

    @property
    def problem(self) -> str:
        """Return why the certificate is no good, or why a newer one is not in force; empty when all is well."""
        if (expired_at := self.expired_at()) is not None:
            return f"the certificate of this daemon has expired at {expired_at:%Y-%m-%d %H:%M} UTC"
        return super().problem


def _files(settings: PushTlsSettings) -> tuple[Path | None, ...]:
    return settings.certificate_file, settings.key_file, settings.ca_file
