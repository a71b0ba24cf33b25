"""AskedEndpoint: the handlers of answers over fakes; requests and answers pass through kio's encoding on the way."""

from dataclasses import replace
from typing import TypeVar

from kio.index import load_request_schema, load_response_from_request
from kio.serial import entity_reader
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from tests.fakes.manual_clock import ManualClock
from tests.fakes.served_partitions import FakeServedPartitions
from tests.serve.kafka.contexts import request_context
from tests.serve.kafka.kio_messages import encoded
from tierd.serve.kafka.answers.answer_handlers import answer_handlers
from tierd.serve.kafka.answers.partition_lookups import LookupLimits
from tierd.serve.kafka.message_versions import in_version
from tierd.serve.kafka.request_context import ANONYMOUS, RequestContext
from tierd.serve.kafka.wire.api_table import API_TABLE

_LIMITS = LookupLimits(at_once=4, timeout_s=5.0)
E = TypeVar("E", bound=Entity)
R = TypeVar("R", bound=ResponsePayload)


class HidingAuthorizer:
    """An ``Authorizer`` of a test: everything is allowed but what the test hides, to everybody.

    Attributes:
        hidden: topics that may neither be seen nor read.
        unreadable: topics that may be seen only.
    """

    def __init__(self) -> None:
        self.hidden = set[str]()
        self.unreadable = set[str]()

    def may_describe_topic(self, principal: str, topic: str) -> bool:
        del principal
        return topic not in self.hidden

    def may_read_topic(self, principal: str, topic: str) -> bool:
        return self.may_describe_topic(principal, topic) and topic not in self.unreadable

    def may_use_group(self, principal: str, group: str) -> bool:
        del principal, group
        return True

    def is_quarantined(self, context: RequestContext) -> bool:
        del context
        return False


class AskedEndpoint:
    """An endpoint of a test.

    Attributes:
        served: what it serves.
        authorizer: what it hides.
        settings: that it tells of itself.
        clock: of its log lines.
    """

    def __init__(self, *, limits: LookupLimits = _LIMITS) -> None:
        self.served = FakeServedPartitions()
        self.authorizer = HidingAuthorizer()
        self.settings: dict[str, str] = {}
        self.clock = ManualClock()
        self.handlers = answer_handlers(
            self.served, self.authorizer, clock=self.clock, limits=limits, settings=lambda: self.settings
        )

    async def ask(self, request: RequestPayload, *, listener: str = "plain") -> ResponsePayload:
        """Return the answer to a request, as a client decodes it."""
        received = _through_the_wire(request)
        context = request_context(version=int(request.__version__), principal=ANONYMOUS)
        answer = await self.handlers[request.__api_key__](received, replace(context, listener=listener))
        response = load_response_from_request(request)
        assert type(answer) is response
        return _through_the_wire(answer)

    async def answer(self, request: RequestPayload, response: type[R], *, version: int | None = None) -> R:
        """Ask in a version, the newest one unless it is given; return the answer as its newest version."""
        wanted = request if version is None else in_version(request, load_request_schema(request.__api_key__, version))
        return in_version(await self.ask(wanted), response)


def versions(api_key: int) -> range:
    """Return the versions of a request."""
    api = API_TABLE[api_key]
    return range(api.min_version, api.max_version + 1)


def _through_the_wire(message: E) -> E:
    content = encoded(message)
    decoded, end = entity_reader(type(message))(content, 0)
    assert end == len(content)
    return decoded
