"""HTTP clients whose requests are attempts: sent once, and at an end when they are given up."""

from functools import partial

import aiohttp
from aiohttp.client import ClientTimeout
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace


def without_repetition(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Return the client, which from now on sends no request again when its connection breaks.

    aiohttp does so once for GET, HEAD, PUT and DELETE, has no setting for it, and its own test client sets the same
    attribute.
    """
    session._retry_connection = False  # noqa: SLF001
    return session


def cutting_abandoned(connector: aiohttp.TCPConnector) -> aiohttp.TCPConnector:
    """Return the connector, whose connections are from now on cut when a request is given up before it is sent.

    aiohttp closes such a connection, which then waits without a deadline to be rid of the rest of the request.

    Args:
        connector: a new one; each further call costs every later request a call.
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
