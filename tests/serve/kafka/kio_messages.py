"""Messages of Kafka's protocol of any kind and version: samples, arbitrary ones, and their frames."""

import io
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin
from uuid import UUID

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from tierd.serve.kafka.wire.api_table import API_TABLE

M = TypeVar("M", bound=Entity)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=20),
    "uuid": st.uuids() | st.none(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(0, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(0, 2**40).map(lambda ms: timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**40).map(lambda ms: datetime.fromtimestamp(ms // 1000, tz=UTC)),
}
_SAMPLES: dict[str, Any] = {
    "bool": True,
    "string": "orders",
    "bytes": b"\1\2\3",
    "records": b"records",
    "uuid": UUID(int=7),
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(seconds=1),
    "timedelta_i64": timedelta(seconds=1),
    "datetime_i64": datetime(2024, 1, 1, tzinfo=UTC),
}


def encoded(message: Entity) -> bytes:
    """Return the bytes of a message."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def all_request_types() -> Iterator[type[RequestPayload]]:
    """Yield every request of the table in every version."""
    for api in API_TABLE.values():
        for version in range(api.min_version, api.max_version + 1):
            yield load_request_schema(api.api_key, version)


def response_types(api_key: int) -> list[type[ResponsePayload]]:
    """Return the answers to one kind of request in every version."""
    api = API_TABLE[api_key]
    return [load_response_schema(api_key, version) for version in range(api.min_version, api.max_version + 1)]


def frame(request: RequestPayload, *, correlation_id: int = 1, client_id: str | None = "client") -> bytes:
    """Return the frame of a request, without its size."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    return encoded(header) + encoded(request)


def sized(content: bytes) -> bytes:
    """Return bytes behind their size, as they are sent."""
    return len(content).to_bytes(4, "big") + content


def decoded_answer(response: type[ResponsePayload], content: bytes) -> tuple[int, ResponsePayload]:
    """Return correlation id and response of a whole answer, its size first; all bytes belong to it."""
    assert int.from_bytes(content[:4], "big") == len(content) - 4
    header, header_bytes = entity_reader(response.__header_schema__)(content, 4)
    found, response_bytes = entity_reader(response)(content, 4 + header_bytes)
    assert 4 + header_bytes + response_bytes == len(content)
    return header.correlation_id, found


def sample(message: type[M], *, items: int = 1) -> M:
    """Return a message with ``items`` elements in every array, and nothing where nothing may be if there are none."""
    return message(**{field.name: _sample_of(field, items) for field in fields(message)})


def _sample_of(field: Field[Any], items: int) -> object:
    kind, may_be_null = _kind_of(field)
    if get_origin(kind) is tuple:
        item: Any = get_args(kind)[0]
        return tuple(sample(item) if _is_message(item) else _sample_scalar(field) for _ in range(items))
    if may_be_null and not items and "tag" not in field.metadata:
        return None
    return sample(kind, items=items) if _is_message(kind) else _sample_scalar(field)


def _sample_scalar(field: Field[Any]) -> object:
    return _SAMPLES.get(field.metadata["kafka_type"], i16(1))


def messages(message: type[Entity]) -> st.SearchStrategy[Any]:
    """Return a strategy of valid messages of one kind and version."""
    return st.builds(message, **{field.name: _strategy_of(field) for field in fields(message)})


def _strategy_of(field: Field[Any]) -> st.SearchStrategy[Any]:
    kind, may_be_null = _kind_of(field)
    found: st.SearchStrategy[Any]
    if get_origin(kind) is tuple:
        item: Any = get_args(kind)[0]
        found = st.lists(messages(item) if _is_message(item) else _scalars(field), max_size=3).map(tuple)
    else:
        found = messages(kind) if _is_message(kind) else _scalars(field)
    return found | st.none() if may_be_null and "tag" not in field.metadata else found


def _scalars(field: Field[Any]) -> st.SearchStrategy[Any]:
    kind = field.metadata["kafka_type"]
    if kind in _BITS:
        return st.integers(-(2 ** (_BITS[kind] - 1)), 2 ** (_BITS[kind] - 1) - 1)
    return _SCALARS[kind]


def _kind_of(field: Field[Any]) -> tuple[Any, bool]:
    alternatives = get_args(field.type)
    if NoneType not in alternatives:
        return field.type, False
    return next(each for each in alternatives if each is not NoneType), True


def _is_message(kind: object) -> bool:
    return is_dataclass(kind)
