"""Every request of the table is answered in every version, whatever is asked."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.static.protocol import RequestPayload

from tests.serve.kafka.answers.asking import AskedEndpoint, versions
from tests.serve.kafka.kio_messages import messages, sample
from tierd.serve.kafka.answers.partition_lookups import LookupLimits

_KEYS = sorted(AskedEndpoint().handlers)
_REQUESTS = [load_request_schema(key, version) for key in _KEYS for version in versions(key)]


def _endpoint() -> AskedEndpoint:
    endpoint = AskedEndpoint(limits=LookupLimits(at_once=2, timeout_s=5.0))
    for log in endpoint.served.add_topic("orders", partitions=3, settings={"retention.ms": "1"}):
        log.append([b"one", b"two"])
    endpoint.served.add_topic("payments")
    return endpoint


def _name(request: type[RequestPayload]) -> str:
    return f"{request.__name__} v{request.__version__}"


@pytest.mark.parametrize("request_type", _REQUESTS, ids=_name)
@pytest.mark.parametrize("items", [0, 2])
async def test_request_of_any_version_is_answered_in_its_version(
    request_type: type[RequestPayload], items: int
) -> None:
    await _endpoint().ask(sample(request_type, items=items))


@pytest.mark.parametrize("api_key", _KEYS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_arbitrary_request_is_answered(api_key: int, data: st.DataObject) -> None:
    request_type = load_request_schema(api_key, data.draw(st.sampled_from(versions(api_key))))
    request = data.draw(messages(request_type))
    if getattr(request, "acks", None) == 0:
        return
    await _endpoint().ask(request)
