"""Descriptors of the process: the limit, how many are open, and what part of them the ports may take."""

import math
import os
import resource
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import JsonValue

from tierd.clock import Clock
from tierd.ports import ConnectionGate, ConnectionLimits

_OWN = Path("/proc/self/fd")
_MAX_LIMIT = 1 << 20  # the kernel's own default bound (fs.nr_open); holds may take half, of a table that all share
_NEAR_LIMIT = 0.8
_COUNT_INTERVAL_S = 1.0
_SHORT = 0.875  # above it the ports give way

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DescriptorUse:
    """Count of open descriptors, and their limit."""

    open: int
    limit: int

    @property
    def is_near_limit(self) -> bool:
        """Return whether the count is above the threshold of the alert in docs/operations.md."""
        return self.open > _NEAR_LIMIT * self.limit

    @property
    def is_short(self) -> bool:
        """Return whether so few descriptors are left that only holds and copies may take more."""
        return self.open > _SHORT * self.limit


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit, but not above a million; return the limit in force.

    Holds by descriptor take up to half of the limit. A limit that cannot be raised stays as it is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_LIMIT if hard == resource.RLIM_INFINITY else min(hard, _MAX_LIMIT)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            log.warning("descriptor_limit_stays", limit=soft, wanted=wanted, problem=str(error))
    return descriptor_limit()


def descriptor_limit() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_LIMIT if soft == resource.RLIM_INFINITY else soft


class DescriptorCount:
    """Count of open descriptors, made at most once a second: before Linux 6.2 it takes a listing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._use = DescriptorUse(0, descriptor_limit())
        self._counted_s = -math.inf

    def use(self) -> DescriptorUse:
        """Return the count of open descriptors, which is at most a second old."""
        now_s = self._clock.monotonic_s()
        if now_s - self._counted_s >= _COUNT_INTERVAL_S:
            self._counted_s, self._use = now_s, descriptor_use()
        return self._use


class PortGates:
    """Gates of the HTTP port and of the control socket, which give way while descriptors are short."""

    def __init__(self, clock: Clock) -> None:
        self._count = DescriptorCount(clock)
        self.http = self._gate(http_limits(descriptor_limit()), clock)
        self.control = self._gate(control_limits(descriptor_limit()), clock)

    def is_short(self) -> bool:
        """Return True while descriptors run out."""
        return self._count.use().is_short

    def facts(self) -> dict[str, JsonValue]:
        """Return the section ``descriptors`` of the status."""
        use = self._count.use()
        return {
            "open": use.open,
            "limit": use.limit,
            "near_limit": use.is_near_limit,
            "http_connections": self.http.connections,
            "http_connections_refused": self.http.refused,
            "control_connections": self.control.connections,
            "control_connections_refused": self.control.refused,
        }

    def _gate(self, limits: ConnectionLimits, clock: Clock) -> ConnectionGate:
        return ConnectionGate(limits, clock=clock, is_short=self.is_short)


def descriptor_use() -> DescriptorUse:
    """Count the descriptors that are open now."""
    try:
        count = _OWN.stat().st_size or len(os.listdir(_OWN))  # noqa: PTH208 - how many is all that is wanted
    except OSError:  # a listing needs a descriptor, and there is none
        count = descriptor_limit()
    return DescriptorUse(count, descriptor_limit())


def http_limits(limit: int) -> ConnectionLimits:
    """Return the limits of the HTTP port: a sixteenth of ``limit`` descriptors, from 8 to 64 connections."""
    connections = min(max(limit // 16, 8), 64)
    return ConnectionLimits(connections=connections, per_peer=max(connections // 4, 4))


def control_limits(limit: int) -> ConnectionLimits:
    """Return the limits of the control socket: a 32nd of ``limit`` descriptors, from 4 to 32 connections."""
    connections = min(max(limit // 32, 4), 32)
    return ConnectionLimits(connections=connections, per_peer=connections)
