"""Fetch: sessions, limits, waits, fencing, and the answers in every version."""

from tierd.serve.kafka.fetching.fetch_handlers import fetch_handlers, fetch_sessions
from tierd.serve.kafka.fetching.fetch_round import FetchLimits
from tierd.serve.kafka.fetching.fetch_session_cache import (
    FetchSessionCache,
    FetchSessionLimits,
    FetchSessionStatistics,
)

__all__ = [
    "FetchLimits",
    "FetchSessionCache",
    "FetchSessionLimits",
    "FetchSessionStatistics",
    "fetch_handlers",
    "fetch_sessions",
]
