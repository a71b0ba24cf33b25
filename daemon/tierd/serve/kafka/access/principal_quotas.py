"""PrincipalQuotas: bytes, requests and connections of each principal against the limits of the file. Pure.

A principal above its rate is answered, and told to wait: ``throttle_time`` of the answer, and its connection reads no
request for as long (KIP-219). The rates are those of Kafka: over the last eleven seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tierd.config import EndpointQuotaRule, full_match
from tierd.tiering import RateQuota

_WINDOWS: Final = 11
_WINDOW_S: Final = 1.0
_LONGEST_THROTTLE_MS: Final = 60_000
_FIRST_SEARCH: Final = 1000  # principals; then those without connections and rate are forgotten


@dataclass(frozen=True, slots=True)
class PrincipalLimits:
    """Limits of one principal; None is no limit."""

    bytes_per_second: int | None = None
    requests_per_second: int | None = None
    connections: int | None = None


def limits_of(rules: Sequence[EndpointQuotaRule], principal: str) -> PrincipalLimits:
    """Return the limits of a principal; the last rule that matches and sets a limit wins."""
    limits = dict[str, int]()
    for rule in rules:
        if full_match(rule.principals, principal):
            given = {
                "bytes_per_second": rule.bytes_per_second,
                "requests_per_second": rule.requests_per_second,
                "connections": rule.connections,
            }
            limits |= {name: value for name, value in given.items() if value is not None}
    return PrincipalLimits(**limits)


@dataclass(slots=True)
class _Usage:
    """Usage of one principal."""

    limits: PrincipalLimits
    bytes: RateQuota = field(default_factory=lambda: RateQuota(windows=_WINDOWS, window_s=_WINDOW_S))
    requests: RateQuota = field(default_factory=lambda: RateQuota(windows=_WINDOWS, window_s=_WINDOW_S))
    connections: int = 0

    def limit_to(self, limits: PrincipalLimits) -> None:
        self.limits = limits
        if limits.bytes_per_second is not None:
            self.bytes.set_limit(limits.bytes_per_second)
        if limits.requests_per_second is not None:
            self.requests.set_limit(limits.requests_per_second)

    def record(self, size_bytes: int, now_s: float) -> None:
        self.record_bytes(size_bytes, now_s)
        if self.limits.requests_per_second is not None:
            self.requests.record(1, now_s)

    def record_bytes(self, size_bytes: int, now_s: float) -> None:
        if self.limits.bytes_per_second is not None:
            self.bytes.record(size_bytes, now_s)

    def throttle_ms(self, now_s: float) -> int:
        by_bytes = 0 if self.limits.bytes_per_second is None else self.bytes.throttle_ms(now_s)
        by_requests = 0 if self.limits.requests_per_second is None else self.requests.throttle_ms(now_s)
        return min(max(by_bytes, by_requests), _LONGEST_THROTTLE_MS)

    def is_idle(self, now_s: float) -> bool:
        return not (self.connections or self.bytes.rate(now_s) or self.requests.rate(now_s))


class PrincipalQuotas:
    """Usage of all principals."""

    def __init__(self, rules: Callable[[], Sequence[EndpointQuotaRule]]) -> None:
        """Ask ``rules`` for the rules in force at each call; new rules apply to what was used before, too."""
        self._rules = rules
        self._seen = rules()
        self._usages: dict[str, _Usage] = {}
        self._search_at = _FIRST_SEARCH

    def record(self, principal: str, size_bytes: int, now_s: float) -> int:
        """Count one request and the bytes of its answer, and return the wait in ms before the next one is read.

        The answer to this request tells the client the same wait. 0 within the limits; a minute at most.

        Args:
            principal: of the connection.
            size_bytes: of the answer, with its records.
            now_s: monotonic.
        """
        usage = self._usage(principal, now_s)
        usage.record(size_bytes, now_s)
        return usage.throttle_ms(now_s)

    def throttle_ms(self, principal: str, now_s: float) -> int:
        """Return the wait in ms until ``principal`` is within its limits; 0 if it is.

        A Fetch that comes meanwhile, such as over a new connection, is answered without records, as by Kafka.
        """
        return self._usage(principal, now_s).throttle_ms(now_s)

    def admit(self, principal: str, size_bytes: int, now_s: float) -> int:
        """Count the records of a Fetch and return 0; above the limits, count none and return the wait in ms.

        A Fetch that began within the limits asks once its records are there, as with a broker: as many others as the
        principal has connections may have begun at the same moment.
        """
        usage = self._usage(principal, now_s)
        wait_ms = usage.throttle_ms(now_s)
        if not wait_ms:
            usage.record_bytes(size_bytes, now_s)
        return wait_ms

    def largest_answer_bytes(self, principal: str, now_s: float) -> int | None:
        """Return the bytes of records that one answer should not exceed, so that the rate holds; None without a limit.

        As in Kafka, it is the rate over the whole time that is remembered.
        """
        limit = self._usage(principal, now_s).limits.bytes_per_second
        return None if limit is None else max(1, int(limit * (_WINDOWS - 1) * _WINDOW_S))

    def connect(self, principal: str, now_s: float) -> bool:
        """Count a connection of ``principal``; return False, and count none, if it has as many as it may."""
        usage = self._usage(principal, now_s)
        if usage.limits.connections is not None and usage.connections >= usage.limits.connections:
            return False
        usage.connections += 1
        return True

    def disconnect(self, principal: str) -> None:
        """Count one connection less; ``connect`` has counted it."""
        usage = self._usages[principal]
        assert usage.connections, "a connection that ends was counted"
        usage.connections -= 1

    def connections(self, principal: str) -> int:
        """Return the number of connections of ``principal``."""
        usage = self._usages.get(principal)
        return usage.connections if usage else 0

    def __len__(self) -> int:
        """Return the number of principals that are remembered."""
        return len(self._usages)

    def _usage(self, principal: str, now_s: float) -> _Usage:
        rules = self._rules()
        if rules is not self._seen:
            self._seen = rules
            for known, usage in self._usages.items():
                usage.limit_to(limits_of(rules, known))
        if found := self._usages.get(principal):
            return found
        self._forget_idle(now_s)
        limits = limits_of(rules, principal)
        new = self._usages[principal] = _Usage(limits)
        new.limit_to(limits)
        return new

    def _forget_idle(self, now_s: float) -> None:
        if len(self._usages) < self._search_at:
            return
        self._usages = {name: usage for name, usage in self._usages.items() if not usage.is_idle(now_s)}
        self._search_at = max(_FIRST_SEARCH, 2 * len(self._usages))
