"""Sockets of this process."""

import asyncio
from pathlib import Path

from tests.fakes.open_files import open_targets
from tests.services.waiting import wait_until


async def wait_disconnected(address: str) -> None:
    """Return when no socket of this process is connected to ``address``, an IPv4 host and port.

    Raises:
        StillWaitingError: a socket was still connected after ten seconds.
    """

    def is_disconnected() -> bool:
        return not _connections(address)

    await asyncio.to_thread(
        wait_until,
        is_disconnected,
        what=f"the end of the connections to {address}",
        deadline_s=10,
        last_seen=lambda: _connections(address),
    )


def _connections(address: str) -> list[str]:
    port = f":{int(address.rpartition(':')[2]):04X}"
    owned = set(open_targets())
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [f"{row[1]} to {row[2]}" for row in rows if row[2].endswith(port) and f"socket:[{row[9]}]" in owned]
