"""Warnings about values of a valid configuration that are seldom meant. Pure; no text repeats an address."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from tierd.config.places import dotted
from tierd.config.schema import TierdConfig
from tierd.config.sections.kafka_endpoint_settings import KafkaEndpointSettings
from tierd.config.sections.leadership_settings import LeadershipSettings
from tierd.config.sections.metadata_settings import MetadataSettings
from tierd.config.sections.remote_settings import RemoteSettings
from tierd.config.traversal import leaf_values
from tierd.config.values import is_local_host

_CHECKED: Final = ("verify-ca", "verify-full")


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """One key of a valid file whose value probably does something else than its author wants."""

    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}"


def config_warnings(config: TierdConfig) -> list[ConfigWarning]:
    """Return the values of ``config`` that are seldom meant, in the order of the schema."""
    return [
        *_tier_keeps_no_more(config),
        *unprotected_metadata(config.metadata),
        *unprotected_store(config.remote),
        *unprotected_kafka(config.leadership),
        *unprotected_endpoint(config.kafka),
    ]


def _tier_keeps_no_more(config: TierdConfig) -> list[ConfigWarning]:
    """Find the tier's retention left to brokers that delete their own copy by it.

    In log dirs with ``owner: tierd`` local retention is a setting of its own, as in a broker with KIP-405.
    """
    if all(log_dir.owner == "tierd" for log_dir in config.log_dirs):
        return []
    limits = {"retention": "no longer", "retention_bytes": "no more"}
    return [
        ConfigWarning(
            dotted(("topics", *location)),
            f"from-broker: brokers delete their own copy by the same limit: the tier keeps {limits[key]} than they do",
            f"write what the tier shall keep, such as {'365d' if key == 'retention' else '10TiB'}, or -1 for all of it",
        )
        for location, _, value in leaf_values(config.topics)
        if (key := str(location[-1])) in limits and value == "from-broker"
    ]


def unprotected_metadata(settings: MetadataSettings) -> Iterator[ConfigWarning]:
    """Yield a warning if a metadata store on another host is used without TLS or a check of its certificate."""
    if settings.backend == "postgres" and settings.postgres and settings.postgres.dsn:
        yield from _postgres(settings.postgres.dsn.get_secret_value())
    if settings.backend == "redis" and settings.redis and settings.redis.url:
        yield from _redis(settings.redis.url.get_secret_value())


def unprotected_store(settings: RemoteSettings) -> Iterator[ConfigWarning]:
    """Yield a warning if an object store on another host is used over http."""
    section = {"s3": settings.s3, "gcs": settings.gcs, "azure": settings.azure}.get(settings.backend)
    address = section.endpoint_url if section else None
    if address and address.startswith("http:") and not is_local_host(urlsplit(address).hostname or ""):
        yield ConfigWarning(
            f"remote.{settings.backend}.endpoint_url",
            "http to another host: what is stored and what is read can be seen and changed on the way",
            "begin the address with https://",
        )


def unprotected_kafka(settings: LeadershipSettings) -> Iterator[ConfigWarning]:
    """Yield a warning if brokers on other hosts are asked without TLS."""
    if settings.source != "kafka" or settings.kafka is None or settings.kafka.security_protocol.endswith("ssl"):
        return
    if all(is_local_host(_host(address)) for address in settings.kafka.bootstrap_servers):
        return
    is_password_sent = (settings.kafka.security_protocol, settings.kafka.sasl_mechanism) == ("sasl_plaintext", "PLAIN")
    yield ConfigWarning(
        "leadership.kafka.security_protocol",
        f"{settings.kafka.security_protocol} to another host: leaders and topic settings, retention among them, can be "
        f"changed on the way{', and the password can be read' if is_password_sent else ''}",
        "set it to ssl or sasl_ssl, with bootstrap_servers of such a listener",
    )


def unprotected_endpoint(settings: KafkaEndpointSettings) -> Iterator[ConfigWarning]:
    """Yield a warning for each listener for other hosts that is not encrypted, or that lets every client read all."""
    is_password_sent = "PLAIN" in settings.sasl.mechanisms
    for index, listener in enumerate(settings.listeners):
        if is_local_host(listener.host):
            continue
        if not listener.is_tls:
            passwords = ", and passwords can be read" if listener.has_login and is_password_sent else ""
            yield ConfigWarning(
                f"kafka.listeners[{index}].protocol",
                f"{listener.protocol} on another interface than loopback: records can be read and changed on the way"
                f"{passwords}",
                "set it to ssl or sasl_ssl, with kafka.tls",
            )
        is_known = listener.has_login or (listener.is_tls and settings.tls.client_certificates == "required")
        if not (is_known or settings.access):
            yield ConfigWarning(
                "kafka.access",
                f"every client that reaches listener {listener.name} reads all topics without a login",
                "set the listener to sasl_ssl, or kafka.tls.client_certificates to required, or write rules of access",
            )


def _postgres(dsn: str) -> Iterator[ConfigWarning]:
    try:
        parts = urlsplit(dsn)
        options = parse_qs(parts.query)
    except ValueError:  # to open the store is an error that says more
        return
    named = ",".join([parts.netloc.rpartition("@")[2], *options.get("host", [])])
    mode = options.get("sslmode", [""])[-1]
    if mode in _CHECKED or all(is_local_host(_host(each)) for each in named.split(",")):
        return
    problem = (
        "sslmode=require encrypts the way to another host, and any certificate is accepted there"
        if mode == "require"
        else f"{f'sslmode={mode}' if mode else 'no sslmode'}: rows and password may go to another host unencrypted"
    )
    yield ConfigWarning(
        "metadata.postgres.dsn",
        problem,
        "end the address with ?sslmode=verify-full&sslrootcert=FILE, where FILE has the authority's certificate",
    )


def _redis(url: str) -> Iterator[ConfigWarning]:
    try:
        parts = urlsplit(url)
        host, unchecked = parts.hostname or "", "none" in parse_qs(parts.query).get("ssl_cert_reqs", [])
    except ValueError:  # as above
        return
    if parts.scheme not in {"redis", "rediss"} or is_local_host(host):
        return
    if parts.scheme == "redis":
        problem = "redis:// to another host: rows and password go there unencrypted"
    elif unchecked:
        problem = "ssl_cert_reqs=none encrypts the way to another host, and any certificate is accepted there"
    else:
        return
    yield ConfigWarning(
        "metadata.redis.url",
        problem,
        "write rediss:// and no ssl_cert_reqs, with ?ssl_ca_certs=FILE for an authority of your own",
    )


def _host(named: str) -> str:
    """Return the host of ``host:port``; an IPv6 address is in brackets."""
    host = named[1:].partition("]")[0] if named.startswith("[") else named.partition(":")[0]
    return unquote(host)
