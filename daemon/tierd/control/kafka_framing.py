"""Frames of Kafka's protocol from kio's typed messages: a request as bytes, and the guarded decoding of its answer.

A frame is ``int32 size | request header | request``, its answer ``int32 size | int32 correlation id | ... | response``.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from tierd.control.message_guard import require_sound
from tierd.errors import DamagedMessageError, KafkaError, TierErrorCode

A_co = TypeVar("A_co", covariant=True)
P = TypeVar("P", bound=ResponsePayload)

REQUEST_NAMES: Final = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    15: "DescribeGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    22: "InitProducerId",
    32: "DescribeConfigs",
    36: "SaslAuthenticate",
    44: "IncrementalAlterConfigs",
    55: "DescribeQuorum",
}
"""API key to Kafka's name of the request, for all requests of tierd."""


@dataclass(frozen=True, slots=True)
class Request(Generic[A_co]):
    """One question to a broker, with the functions that write it and read its answer."""

    name: str
    frame: Callable[[int], bytes]
    """Maps a correlation id to the bytes to send, size first."""
    answer: Callable[[bytes], A_co]
    """Maps the bytes behind the correlation id to the answer; raises KafkaError."""


def typed_request(
    request: RequestPayload,
    response: type[P],
    parse: Callable[[P], A_co],
    *,
    answer: Callable[[bytes, Callable[[bytes], A_co]], A_co] | None = None,
) -> Request[A_co]:
    """Return the request of a typed message.

    Args:
        request: the message; its class says which request in which version it is.
        response: class of the answer.
        parse: makes a value of tierd from the decoded answer.
        answer: takes the answer's bytes and the function that decodes and parses them, where some need another way.
    """

    def read(content: bytes) -> A_co:
        return parse(decoded(response, content))

    return Request(
        name=REQUEST_NAMES[request.__api_key__],
        frame=lambda correlation_id: _frame(request, correlation_id),
        answer=read if answer is None else lambda content: answer(content, read),
    )


def error_name(code: ErrorCode) -> str:
    """Return Kafka's name of an error; empty for success."""
    return "" if code is ErrorCode.none else code.name


def _frame(request: RequestPayload, correlation_id: int) -> bytes:
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(correlation_id),
        client_id="tierd",
    )
    body = _encoded(header) + _encoded(request)
    return len(body).to_bytes(4, "big") + body


def _encoded(message: Entity) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def decoded(response: type[P], content: bytes) -> P:
    """Decode the bytes behind the correlation id of an answer.

    Raises:
        KafkaError: the bytes are damaged, or no answer of this kind.
    """
    start = _header_end(content) if response.__header_schema__.__flexible__ else 0
    try:
        sound = require_sound(response, content, start)
    except DamagedMessageError as error:
        raise KafkaError(
            str(error),
            remedy="check that bootstrap_servers name brokers of Apache Kafka, with nothing in between",
            code=TierErrorCode.KAFKA_PROTOCOL,
        ) from error
    try:
        return entity_reader(response)(sound.content, start)[0]
    except (SerialError, ValueError, OverflowError, LookupError) as error:
        raise KafkaError(
            f"{response.__name__} of {len(content)} bytes cannot be decoded: {error}",
            remedy="check that bootstrap_servers name brokers of Apache Kafka 3.1 or newer",
            code=TierErrorCode.KAFKA_PROTOCOL,
        ) from error


def _header_end(content: bytes) -> int:
    """Return the position at which the header's tagged fields end; brokers send none."""
    if content[:1] != b"\0":
        raise KafkaError(
            "an answer begins with a header that no broker sends",
            remedy="check that bootstrap_servers name brokers of Apache Kafka",
            code=TierErrorCode.KAFKA_PROTOCOL,
        )
    return 1
