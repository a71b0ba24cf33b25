"""Answer to ApiVersions: the table of the endpoint. It has no features, so that clients take the ways without them.

Features of a cluster are levels such as ``transaction.version`` and ``group.version``. Clients switch on new ways of
writing, or the new group protocol, by the levels that are final; the endpoint has neither.
"""

from functools import cache

from kio.index import load_response_from_request
from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.message_versions import NO_THROTTLE, in_version
from tierd.serve.kafka.wire.api_table import API_TABLE


def api_versions_answer(request: RequestPayload) -> ResponsePayload:
    """Return the requests that the endpoint takes, with their versions."""
    return _answer(load_response_from_request(request))


@cache
def _answer(response: type[ResponsePayload]) -> ResponsePayload:
    api_keys = tuple(
        ApiVersion(api_key=i16(each.api_key), min_version=i16(each.min_version), max_version=i16(each.max_version))
        for each in API_TABLE.values()
    )
    latest = ApiVersionsResponse(error_code=ErrorCode.none, api_keys=api_keys, throttle_time=NO_THROTTLE)
    return in_version(latest, response)
