"""Orders and their parts as JSON, one line each; decoding is strict, and says which field is wrong."""

from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from tierd.errors import WorkOrderError
from tierd.pipeline.planning.work_order import Output, PartitionWork, WorkOrder

_ORDER: Final = TypeAdapter(WorkOrder)
_WORK: Final = TypeAdapter(PartitionWork)
_OUTPUT: Final = TypeAdapter(Output)
_T = TypeVar("_T")


def encode_order(order: WorkOrder) -> bytes:
    """The JSON form, secret included, without a line end."""
    return _ORDER.dump_json(order)


def decode_order(content: bytes | str) -> WorkOrder:
    """Parse ``encode_order``.

    Raises:
        WorkOrderError: it is none; names the field.
    """
    return _decoded(_ORDER, content, "work order")


def encode_work(work: PartitionWork) -> bytes:
    """The JSON form of one partition's work, without a line end."""
    return _WORK.dump_json(work)


def decode_work(content: bytes | str) -> PartitionWork:
    """Parse ``encode_work``.

    Raises:
        WorkOrderError: it is none; names the field.
    """
    return _decoded(_WORK, content, "partition work")


def encode_output(output: Output) -> bytes:
    """The JSON form of one output, without a line end."""
    return _OUTPUT.dump_json(output)


def decode_output(content: bytes | str) -> Output:
    """Parse ``encode_output``.

    Raises:
        WorkOrderError: it is none; names the field.
    """
    return _decoded(_OUTPUT, content, "output")


def _decoded(adapter: TypeAdapter[_T], content: bytes | str, what: str) -> _T:
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise WorkOrderError(
            f"{what}: {place}: {first['msg']}", remedy="leader and job must be of one tierd"
        ) from error
