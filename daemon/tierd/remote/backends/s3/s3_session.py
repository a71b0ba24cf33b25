"""Sessions of aiobotocore that send every request once: requests are repeated by ``remote.retry``."""

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession, get_session

from tierd.remote.backends.http_attempts import cutting_abandoned, without_repetition


class OneAttemptSession(AIOHTTPSession):
    """HTTP connections of one client, each request an attempt."""

    async def _create_connector(self, proxy_url: str | None) -> aiohttp.TCPConnector:
        return cutting_abandoned(await super()._create_connector(proxy_url))  # type: ignore[misc]  # not in the stubs

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        return without_repetition(await super()._get_session(proxy_url))  # type: ignore[misc]  # not in the stubs


def one_attempt_session() -> AioSession:
    """Return a session whose clients, those that fetch credentials included, do not repeat requests by themselves."""
    session = get_session()
    session.set_default_client_config(AioConfig(retries={"total_max_attempts": 1}, http_session_cls=OneAttemptSession))
    return session
