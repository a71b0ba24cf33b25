"""Errors of the pipeline on which only this room, or the user of a query, acts."""

from pydantic import ValidationError

from tierd.errors import PipelineError


class WorkOrderError(PipelineError):
    """A work order, or a message about one, cannot be understood; the message names the field."""


class LeaderChannelError(PipelineError):
    """Between leader and job: the other side is gone, did not answer in time, or does not speak the protocol."""


class ReadOptionError(PipelineError, ValueError):
    """An option of a query that cannot be used."""


class DataLossError(PipelineError):
    """Offsets that a query needs are not in the tier, or not any more."""


def first_fault(error: ValidationError) -> str:
    """Return the first fault of an input that does not fit a schema: its place and what is wrong, without the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"
