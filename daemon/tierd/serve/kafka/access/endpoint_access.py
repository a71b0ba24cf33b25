"""EndpointAccess: everything that decides who may do what at the read endpoint, made of its settings."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tierd.clock import Clock
from tierd.config import KafkaEndpointSettings
from tierd.serve.kafka.access.authorizer import RuleAuthorizer
from tierd.serve.kafka.access.listener_certificates import ListenerCertificates
from tierd.serve.kafka.access.listener_logins import ListenerLogins, new_nonce
from tierd.serve.kafka.access.principal_quotas import PrincipalQuotas
from tierd.serve.kafka.access.quarantine import (
    QUARANTINE_FILE,
    HeldClients,
    Quarantine,
    QuarantineRelease,
    read_release,
)
from tierd.serve.kafka.access.user_verifiers import UserVerifiers


@dataclass(frozen=True, slots=True)
class AccessStatistics:
    """State of the access at one moment; the numbers count since the start.

    Attributes:
        held: clients that are held back.
        failed_certificates: changed certificates that could not be used.
        certificate_problem: why the former files are in force and the present ones cannot be used; empty otherwise.
    """

    logins: int
    failed_logins: int
    held: HeldClients
    failed_certificates: int
    certificate_problem: str


class EndpointAccess:
    """Access to one endpoint: certificates, logins, rules, quotas and quarantine, by the settings in force.

    Attributes:
        authorizer: answers the questions of all requests.
        quotas: of the principals.
        quarantine: what is held back, and the verbs that change it.
        certificates: the TLS of the listeners; None if no listener has it.
        logins: of all listeners with logins.
    """

    def __init__(
        self,
        settings: KafkaEndpointSettings,
        *,
        users: UserVerifiers,
        release: QuarantineRelease,
        quarantine_file: Path,
        clock: Clock,
    ) -> None:
        """Build the parts; ``users`` and ``release`` were made of ``settings`` and read from ``quarantine_file``."""
        self._settings = settings
        self._users = users
        self.quarantine = Quarantine(lambda: self._settings.quarantine, quarantine_file, release=release, clock=clock)
        self.authorizer = RuleAuthorizer(lambda: self._settings.access, self.quarantine)
        self.quotas = PrincipalQuotas(lambda: self._settings.quotas)
        has_tls = any(listener.is_tls for listener in settings.listeners)
        self.certificates = ListenerCertificates(lambda: self._settings.tls, clock=clock) if has_tls else None
        self.logins = ListenerLogins(lambda: self._users, lifetime_ms=self._lifetime_ms, clock=clock, nonce=new_nonce)

    @classmethod
    async def open(cls, settings: KafkaEndpointSettings, *, state_dir: Path, clock: Clock) -> Self:
        """Read certificates and the file of the quarantine, and make the verifiers of the users.

        Raises:
            ListenError: certificate or key cannot be used.
        """
        quarantine_file = state_dir / QUARANTINE_FILE
        release = await asyncio.to_thread(read_release, quarantine_file)
        users = await asyncio.to_thread(UserVerifiers.derive, settings.sasl)
        access = cls(settings, users=users, release=release, quarantine_file=quarantine_file, clock=clock)
        if access.certificates is not None:
            await access.certificates.load()
        return access

    async def follow(self, settings: KafkaEndpointSettings) -> None:
        """Take the settings of a reload: certificates, users, rules, quotas and quarantine are in force from now on.

        Connections that are logged in stay, and are asked by the new rules. Cancelled, nothing has changed.
        """
        users = self._users
        if settings.sasl != self._settings.sasl:
            users = await asyncio.to_thread(UserVerifiers.derive, settings.sasl)
        self._settings, self._users = settings, users

    def statistics(self) -> AccessStatistics:
        """Return the state of the access now."""
        return AccessStatistics(
            logins=self.logins.logins,
            failed_logins=self.logins.failures.total,
            held=self.quarantine.held,
            failed_certificates=self.certificates.failed_reloads if self.certificates else 0,
            certificate_problem=self.certificates.problem if self.certificates else "",
        )

    def _lifetime_ms(self) -> int:
        return round((self._settings.sasl.max_reauth_s or 0) * 1000)
