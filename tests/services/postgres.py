"""PostgreSQL for tests: empty databases, and direct queries beside the code under test."""

import os
import subprocess
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import uuid4

from tests.services.services import Services


@dataclass(frozen=True, slots=True)
class PostgresService:
    """Running PostgreSQL. ``services`` can kill, freeze and restart it under the name ``postgres``."""

    dsn: str
    services: Services

    def create_database(self) -> str:
        """Make an empty database with a fresh name; return its address."""
        name = f"test_{uuid4().hex}"
        psql(self.dsn, f"CREATE DATABASE {name}")
        return urlsplit(self.dsn)._replace(path=f"/{name}").geturl()

    def drop_database(self, dsn: str) -> None:
        """Remove a database and cut every connection to it."""
        psql(self.dsn, f"DROP DATABASE {urlsplit(dsn).path[1:]} WITH (FORCE)")


def psql(dsn: str, statement: str) -> str:
    """Run one statement with the client of the product; return its output, one row a line.

    Raises:
        CalledProcessError: the server refused it.
    """
    command = ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", dsn]
    environment = os.environ | {"PGCONNECT_TIMEOUT": "10"}
    return subprocess.run(
        [*command, "--command", statement], check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


def through(dsn: str, address: str) -> str:
    """Return the same address over another way, for example that of a ``FaultyPath``."""
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{address}").geturl()
