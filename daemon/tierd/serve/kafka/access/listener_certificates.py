"""ListenerCertificates: the TLS of listeners, with the certificates that the files have now."""

import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from tierd.clock import Clock
from tierd.config import EndpointTlsSettings
from tierd.errors import ListenError
from tierd.masking import Masking
from tierd.ports import CertificateMaking, LoadedCertificates

_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


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


class ListenerCertificates(LoadedCertificates[EndpointTlsSettings, ssl.SSLContext]):
    """The TLS of all listeners of one endpoint."""

    def __init__(self, settings: Callable[[], EndpointTlsSettings], *, clock: Clock) -> None:
        """Load nothing yet; ``settings`` returns those in force."""
        making = CertificateMaking(
            settings=settings,
            files=_files,
            make=server_context,
            loaded_event="endpoint_certificate_loaded",
            unusable_event="endpoint_certificate_unusable",
        )
        super().__init__(making, clock=clock)


def _files(settings: EndpointTlsSettings) -> tuple[Path | None, ...]:
    return settings.certificate_file, settings.key_file, settings.client_ca_file
