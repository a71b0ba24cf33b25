"""Redis for tests: a database of their own, and direct access beside the code under test."""

from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

import redis

from tests.services.services import Services

DATABASES = 1000


@dataclass(frozen=True, slots=True)
class RedisService:
    """Running Redis. ``services`` can kill, freeze and restart it under the name ``redis``."""

    url: str
    services: Services


_numbers = count(1)


def empty_database(url: str) -> str:
    """Return the address of an empty database of that server that no other test uses."""
    own = urlsplit(url)._replace(path=f"/{next(_numbers) % DATABASES}").geturl()
    with redis.Redis.from_url(own) as client:
        client.flushdb()
    return own


def through(dsn: str, address: str) -> str:
    """Return the same address over another way, for example that of a ``FaultyPath``."""
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{address}").geturl()
