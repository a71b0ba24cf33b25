"""Client of the read endpoint that decodes nothing, so that a benchmark does not measure its client."""

import socket
from datetime import timedelta
from time import perf_counter, process_time
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchableTopicResponse, FetchResponse, PartitionData
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from tests.scenarios.load_client import end_of_batches, fetch_frame
from tests.serve.kafka.kio_messages import encoded
from tierd.control.kafka_framing import decoded

_FETCH_BYTES: Final = 8 << 20
_TIMEOUT_S: Final = 60.0
_CORRELATION_ID_BYTES: Final = 4
_COUNT_BYTES: Final = 4


class PlainCost(NamedTuple):
    """Cost of a read by the client that decodes nothing: time, and the CPU time of the client itself."""

    seconds: float
    client_cpu_s: float


def plain_fetches(bootstrap: str, topic: str) -> PlainCost:
    """Read a topic with a client that decodes nothing, one Fetch after the other.

    The client copies the bytes once, from the socket into one buffer, as the loop of ranged GETs does. It looks at the
    head of each batch, so that a gap is found.
    """
    host, _, port = bootstrap.rpartition(":")
    begun_s, begun_cpu_s, offset, end = perf_counter(), process_time(), 0, 1
    head_bytes, buffer = len(_answer_head(topic)), bytearray(2 * _FETCH_BYTES)
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connected:
        while offset < end:
            connected.sendall(fetch_frame(topic, 0, offset, max_bytes=_FETCH_BYTES, max_wait_s=1.0))
            answer = _received(connected, buffer)
            head = bytes(answer[_CORRELATION_ID_BYTES : head_bytes - _COUNT_BYTES]) + bytes(_COUNT_BYTES)
            (answered,) = decoded(FetchResponse, head).responses
            found = answered.partitions[0]
            assert found.error_code is ErrorCode.none, found.error_code
            offset, end = end_of_batches(answer[head_bytes:], offset), found.high_watermark
    return PlainCost(perf_counter() - begun_s, process_time() - begun_cpu_s)


def _answer_head(topic: str) -> bytes:
    """Return an answer without records; the records of one partition follow behind such a head."""
    none = PartitionData(
        partition_index=i32(0), error_code=ErrorCode.none, high_watermark=i64(0), aborted_transactions=(), records=None
    )
    response = FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta()),
        error_code=ErrorCode.none,
        responses=(FetchableTopicResponse(topic=TopicName(topic), partitions=(none,)),),
    )
    return bytes(_CORRELATION_ID_BYTES) + encoded(response)


def _received(connected: socket.socket, buffer: bytearray) -> memoryview:
    """Return the next answer without its size, as a view of ``buffer``."""
    size = memoryview(bytearray(_COUNT_BYTES))
    _fill(connected, size)
    answer = memoryview(buffer)[: int.from_bytes(size, "big")]
    _fill(connected, answer)
    return answer


def _fill(connected: socket.socket, view: memoryview) -> None:
    while view:
        count = connected.recv_into(view)
        assert count, "the server has closed the connection"
        view = view[count:]
