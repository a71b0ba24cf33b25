"""TLS towards brokers: trusted certificates, our own certificate, and the errors of a failed handshake."""

import ssl
from pathlib import Path

from pydantic import SecretStr

from tierd.config import KafkaConnectionSettings
from tierd.errors import KafkaError, KafkaUnreachableError, TierErrorCode
from tierd.masking import Masking


def tls_context(settings: KafkaConnectionSettings) -> ssl.SSLContext | None:
    """Read the certificates and return the context, None where the protocol is in the clear. Reads files.

    Raises:
        KafkaError: a file is missing, is no PEM, or its key does not open with the password.
    """
    if settings.security_protocol not in {"ssl", "sasl_ssl"}:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.verify_hostname
    if settings.ca_file is None:
        context.load_default_certs()
    else:
        _load_authorities(context, settings.ca_file)
    if settings.cert_file is not None and settings.key_file is not None:
        _load_certificate(context, settings.cert_file, settings.key_file, settings.key_password)
    return context


def _load_authorities(context: ssl.SSLContext, ca_file: Path) -> None:
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise KafkaError(
            f"ca_file {ca_file} cannot be used: {error}",
            remedy="let leadership.kafka.ca_file name a readable file of PEM certificates",
            code=TierErrorCode.KAFKA_TLS,
        ) from error


def _load_certificate(context: ssl.SSLContext, cert_file: Path, key_file: Path, password: SecretStr | None) -> None:
    # Without a password of ours OpenSSL would ask for one on the terminal.
    secret = password.get_secret_value() if password is not None else ""
    try:
        context.load_cert_chain(cert_file, key_file, password=lambda: secret)
    except (OSError, ssl.SSLError, ValueError) as error:
        failure = Masking(secret).error(error)
        raise KafkaError(
            f"cert_file {cert_file} with key_file {key_file} cannot be used: {failure}",
            remedy="let both be readable PEM files that belong together, and set key_password if the key has one",
            code=TierErrorCode.KAFKA_TLS,
        ) from failure


def handshake_error(address: str, error: Exception) -> KafkaError:
    """Return the error for a failure to connect by TLS."""
    match error:
        case ssl.SSLCertVerificationError() if error.verify_code in {62, 64}:  # X509_V_ERR_{HOSTNAME,IP}_MISMATCH
            return KafkaError(
                f"{address}: the broker's certificate is for another host: {error.verify_message}",
                remedy="name the broker in bootstrap_servers and advertised.listeners as its certificate does",
                code=TierErrorCode.KAFKA_TLS,
            )
        case ssl.SSLCertVerificationError():
            return KafkaError(
                f"{address}: the broker's certificate is not trusted: {error.verify_message}",
                remedy="let leadership.kafka.ca_file name the authority that signed the brokers' certificates",
                code=TierErrorCode.KAFKA_TLS,
            )
        case ssl.SSLError() if error.reason in {"WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING"}:
            return no_tls_there(address)
        case ssl.SSLError():
            return KafkaError(
                f"{address}: TLS failed: {error.reason or error}",
                remedy="compare security_protocol, cert_file and ca_file with the listener of the broker",
                code=TierErrorCode.KAFKA_TLS,
            )
        case _:
            return KafkaUnreachableError(
                f"{address}: connection lost in the TLS handshake ({str(error) or type(error).__name__})",
                remedy="check that the listener speaks TLS, as security_protocol says, and that the broker is up",
            )


def no_tls_there(address: str) -> KafkaError:
    """Return the error for a listener without TLS."""
    return KafkaError(
        f"{address}: the listener does not speak TLS",
        remedy="name the port of a TLS listener, or set security_protocol to plaintext or sasl_plaintext",
        code=TierErrorCode.KAFKA_TLS,
    )


def certificate_refused(address: str, error: ssl.SSLError) -> KafkaError:
    """Return the error for a TLS alert after the handshake (TLS 1.3 checks our certificate late)."""
    return KafkaError(
        f"{address}: the broker refused our certificate: {error.reason or error}",
        remedy="set cert_file and key_file to a certificate that the brokers trust (ssl.client.auth is required there)",
        code=TierErrorCode.KAFKA_TLS,
    )
