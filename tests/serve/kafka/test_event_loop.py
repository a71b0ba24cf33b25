"""Requests with thousands of elements, beside which the event loop goes on: the daemon copies segments in it."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import Field, fields, is_dataclass, replace
from datetime import timedelta
from itertools import count
from types import NoneType
from typing import Any, get_args
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.static.protocol import Entity, RequestPayload

from tests.fakes.manual_clock import ManualClock
from tests.serve.kafka.connections.running_endpoint import RunningEndpoint, running_endpoint
from tests.serve.kafka.fetching.fetch_endpoint import FixedQuotas
from tests.serve.kafka.groups.asked_groups import TOPIC, AskedGroups
from tests.serve.kafka.kio_messages import frame, sample, sized
from tierd.metadata import MemoryKeyValueStore
from tierd.serve.kafka.answers.answer_handlers import answer_handlers
from tierd.serve.kafka.fetching.fetch_handlers import fetch_handlers, fetch_sessions
from tierd.serve.kafka.message_versions import is_array, item_type
from tierd.serve.kafka.wire.api_table import API_TABLE

ITEMS = 6_000
PARTITIONS = 3000
LONGEST_HOLD_S = 0.04  # of CPU time
_PRODUCE, _JOIN, _SASL = 0, 11, (17, 36)


def _depths(message: type[Entity]) -> int:
    """Return the number of arrays of messages inside one another."""
    inner = [item_type(each) for each in fields(message) if is_array(each) and "tag" not in each.metadata]
    return max((1 + (_depths(each) if is_dataclass(each) else 0) for each in inner), default=0)  # type: ignore[arg-type]


def _wide(message: type[Entity], depth: int, numbers: Iterator[int], *, items: int = ITEMS) -> Any:  # noqa: ANN401 - of any kind
    """Return a message whose arrays at ``depth`` have so many different items, and the others one."""
    values: dict[str, Any] = {}
    for each in fields(message):
        if not is_array(each):
            continue
        many = items if depth == 1 else 1
        kind = item_type(each)
        values[each.name] = tuple(
            _wide(kind, depth - 1, numbers, items=items) if is_dataclass(kind) else _scalar(each, next(numbers))  # type: ignore[arg-type]
            for _ in range(many)
        )
    made = replace(sample(message, items=0), **values)
    return replace(made, **{each.name: _scalar(each, next(numbers)) for each in fields(message) if _is_varied(each)})


def _is_varied(field: Field[Any]) -> bool:
    is_key = field.name in {"partition", "partition_index", "group_id", "topic_id"} or field.name.endswith("name")
    return is_key and not is_array(field) and NoneType not in get_args(field.type)


def _scalar(field: Field[Any], number: int) -> Any:  # noqa: ANN401 - of any kind
    kind = field.metadata.get("kafka_type")
    if kind == "string":
        return TOPIC if number == 0 else f"t{number}"
    return UUID(int=number + 1) if kind == "uuid" else number % PARTITIONS if kind in {"int32", "int64"} else b"x"


def _requests() -> Iterator[Any]:
    for api in API_TABLE.values():
        request = load_request_schema(api.api_key, api.max_version)
        for depth in range(1, 1 + _depths(request) if api.api_key not in _SASL else 0):
            yield pytest.param(request, depth, id=f"{api.name}-{depth}")


@asynccontextmanager
async def _endpoint() -> AsyncIterator[RunningEndpoint]:
    groups, clock = AskedGroups(MemoryKeyValueStore()), ManualClock()
    groups.served.add_topic(TOPIC, partitions=PARTITIONS)
    handlers = {
        **answer_handlers(groups.served, groups.authorizer, clock=clock),
        **fetch_handlers(groups.served, groups.authorizer, FixedQuotas(), fetch_sessions(), clock=clock),
        **groups.handlers,
    }
    async with groups.running(), running_endpoint(handlers) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    """Leave out collections of garbage: their time depends on the tests that ran before in the process."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class _Holds:
    """Measures the longest time for which other tasks hold the event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            self.longest_s, last_s = max(self.longest_s, now_s - last_s), now_s


@pytest.mark.parametrize(("request_type", "depth"), list(_requests()))
async def test_wide_request_holds_the_event_loop_for_no_longer_than_a_small_part_of_it(
    request_type: type[RequestPayload], depth: int
) -> None:
    request = _wide(request_type, depth, count())
    if hasattr(request, "max_wait"):
        request = replace(request, max_wait=timedelta(0))
    content, holds = sized(frame(request)), _Holds()
    async with _endpoint() as endpoint:
        client = await endpoint.connect()
        watching = asyncio.create_task(holds.watch())
        await client.send_bytes(content)
        await client.receive()
        watching.cancel()
    assert holds.longest_s < LONGEST_HOLD_S
