"""Contexts of requests for tests of handlers."""

import asyncio

from tierd.serve.kafka.memory_budget import MemoryBudget
from tierd.serve.kafka.request_context import ANONYMOUS, RequestContext


def request_context(*, version: int = 0, principal: str = ANONYMOUS, memory_bytes: int = 1 << 30) -> RequestContext:
    """Return a context of a client of this host; ``dataclasses.replace`` changes the rest."""
    return RequestContext(
        version=version,
        client_id="client",
        principal=principal,
        listener="plain",
        peer="127.0.0.1",
        connection_id=1,
        memory=MemoryBudget(memory_bytes, share_bytes=memory_bytes).share(),
        closing=asyncio.Event(),
    )
