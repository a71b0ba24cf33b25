"""DaemonEndpoint of a daemon whose configuration has no listeners."""

import pytest

from tierd.app.daemon.daemon_endpoint import DaemonEndpoint
from tierd.config import KafkaEndpointSettings
from tierd.errors import RefusedError
from tierd.serve import HOLD_ENDPOINT, RELEASE_ENDPOINT, QuarantineRequest


async def test_endpoint_that_is_off_does_nothing() -> None:
    off = DaemonEndpoint(None)

    async def loaded() -> None:
        raise AssertionError("nothing waits for the partitions")

    await off.run(loaded)
    await off.follow(KafkaEndpointSettings())
    off.stop()
    assert (off.not_ready, off.facts(), await off.facts_with_lag()) == ("", {}, {})


async def test_quarantine_of_an_endpoint_that_is_off_is_refused() -> None:
    handlers = DaemonEndpoint(None).handlers()
    assert len(handlers) == 2
    for verb, handler in zip((RELEASE_ENDPOINT, HOLD_ENDPOINT), handlers, strict=True):
        assert handler.verb == verb.name
        with pytest.raises(RefusedError, match="the read endpoint is off"):
            await handler.answer(verb.request_line(QuarantineRequest()))
