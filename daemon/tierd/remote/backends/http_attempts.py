"""HTTP clients whose requests are attempts: sent once, and cut off when they are abandoned."""

from functools import partial

import aiohttp
from aiohttp.client import ClientTimeout
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace


def without_repetition(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Return the client, set to send no request again when its connection breaks.

    By default aiohttp repeats GET, HEAD, PUT and DELETE once. There is no setting for it; aiohttp's own test client
    sets the same attribute.
    """
    session._retry_connection = False  # noqa: SLF001
    return session


def cutting_abandoned(connector: aiohttp.TCPConnector) -> aiohttp.TCPConnector:
    """Return the connector, set to cut the connection of a request that is abandoned before it is sent.

    aiohttp closes such a connection, which then waits without a deadline until the rest of the request is sent.

    Args:
        connector: a new connector: a second call for the same one would add a callback to each request.
    """
    connect = connector.connect

    async def connect_for_one_attempt(req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        connection = await connect(req, traces, timeout)
        connection.add_callback(partial(_cut_if_unsent, connection))
        return connection

    connector.connect = connect_for_one_attempt  # type: ignore[method-assign]
    return connector


def _cut_if_unsent(connection: Connection) -> None:
    transport = connection.transport
    if transport is not None and transport.get_write_buffer_size():
        transport.abort()
