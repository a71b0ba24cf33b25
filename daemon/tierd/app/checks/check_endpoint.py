"""The steps of ``check-config --online`` for the read endpoint: certificates, and the addresses that it names.

No port is bound: the daemon may run.
"""

import asyncio
import socket
from functools import partial
from typing import Final

from tierd.app.checks.checklist import Checklist
from tierd.clock import Clock
from tierd.config import EndpointListenerSettings, EndpointTlsSettings, KafkaEndpointSettings
from tierd.errors import ListenError
from tierd.serve import certificate_end, server_context

_AREA: Final = "read endpoint"
_RESOLVE_TIMEOUT_S: Final = 10.0
_DAY_MS: Final = 86_400_000


async def check_endpoint(settings: KafkaEndpointSettings, checklist: Checklist, *, clock: Clock) -> None:
    """Read the certificates, and look every address up that the endpoint listens at or tells its clients."""
    if any(listener.is_tls for listener in settings.listeners):
        await checklist.step(_AREA, "certificate", partial(_usable_certificate, settings.tls, now_ms=clock.now_ms()))
    for listener in settings.listeners:
        await checklist.step(_AREA, f"listener {listener.name}", partial(_address_of_this_host, listener))
    told = [listener.advertised_address(listener.port) for listener in settings.listeners]
    told += [peer.address_for(each.name) for peer in settings.peers for each in settings.listeners]
    for host in dict.fromkeys(host for host, _ in told):
        await checklist.step(_AREA, f"address {host}", partial(_found, host))


async def _usable_certificate(tls: EndpointTlsSettings, *, now_ms: int) -> str:
    await asyncio.to_thread(server_context, tls)
    assert tls.certificate_file is not None, "the context was made of it"
    end = await asyncio.to_thread(certificate_end, tls.certificate_file)
    left_ms = end.timestamp() * 1000 - now_ms
    if left_ms <= 0:
        raise ListenError(
            f"the certificate in {tls.certificate_file} ended at {end:%Y-%m-%d %H:%M} UTC",
            remedy="put a new certificate there; tierd takes it without a restart",
        )
    days = int(left_ms / _DAY_MS)
    return f"fits its key, and is valid for {days} days; certificates of clients: {tls.client_certificates}"


async def _address_of_this_host(listener: EndpointListenerSettings) -> str:
    await require_own_address(listener.host, place=f"listen of listener {listener.name}")
    return f"{listener.protocol} at {listener.listen}"


async def require_own_address(host: str, *, place: str) -> None:
    """Require that each address of ``host``, which the file has at ``place``, is this host's own. No port is bound.

    Raises:
        ListenError: there is no address, or it is another host's.
    """
    for family, address in await _addresses(host):
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            try:
                trial.bind((address, 0))
            except OSError as error:
                raise ListenError(
                    f"{address} is no address of this host: {error.strerror}",
                    remedy=f"correct {place}, or give the address to an interface",
                ) from error


async def _found(host: str) -> str:
    return ", ".join(address for _, address in await _addresses(host))


async def _addresses(host: str) -> list[tuple[int, str]]:
    try:
        async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "it took too long"
        raise ListenError(
            f"{host} has no address: {reason}", remedy="correct the name, or let the name service know it"
        ) from error
    return list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in found))
