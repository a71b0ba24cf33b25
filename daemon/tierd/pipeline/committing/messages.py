"""Messages between job and leader: one JSON object per line, requests and answers alternate.

::

    → {"id": 1, "body": {"request": "hello", "version": 1}}
    ← {"id": 1, "body": {"answer": "welcome", "run_id": "…"}}
    → {"id": 2, "body": {"request": "begin", "index": 0, "groups": [0, 1]}}
    ← {"id": 2, "body": {"answer": "problem", "problem": "…", "remedy": "…"}}

The job asks, the leader answers. The end of the stream, on either side, is the end of the run.
"""

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeVar
from uuid import UUID

from pydantic import Field, TypeAdapter, ValidationError

from tierd.pipeline.pipeline_errors import WorkOrderError, first_fault
from tierd.pipeline.planning import ChannelJson, Output, PartitionWork

VERSION: Final = 1
MAX_REQUEST_BYTES: Final = 16 << 20  # the manifest of a segment of 2 GiB in chunks of 1 MiB has 200 KB
MAX_ANSWER_BYTES: Final = 256 << 20  # the work of one partition: 300 bytes an input, 80 an aborted transaction

_Number = Annotated[int, Field(ge=0, lt=2**63)]
_Text = Annotated[str, Field(max_length=10_000)]
_Counts = Annotated[dict[Annotated[str, Field(max_length=100)], _Number], Field(max_length=100)]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(ChannelJson):
    """Greeting, which is the first request and no other one. Answered by ``Welcome``."""

    version: int
    request: Literal["hello"] = "hello"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOrder(ChannelJson):
    """Request for the order of the run. Answered by ``OrderHeader``."""

    request: Literal["order"] = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWork(ChannelJson):
    """Request for the work on one partition. Answered by ``Work``."""

    index: _Number
    request: Literal["work"] = "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(ChannelJson):
    """Announcement that groups are about to be rewritten. Answered by ``Begun``."""

    index: _Number
    groups: tuple[_Number, ...]
    request: Literal["begin"] = "begin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(ChannelJson):
    """Report that an output's objects are stored. Answered by ``Verdict``.

    Attributes:
        erased: pairs of the place of a key among the erased keys of the partition, ascending, and of the number of
            its records that were removed.
    """

    output: UUID
    manifest: str
    counts: _Counts = field(default_factory=dict)
    erased: tuple[tuple[_Number, _Number], ...] = ()
    request: Literal["written"] = "written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged(ChannelJson):
    """Report that a group is right as it is, or an audited segment sound. Answered by ``Noted``."""

    index: _Number
    group: _Number
    counts: _Counts = field(default_factory=dict)
    request: Literal["unchanged"] = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(ChannelJson):
    """Report that a group could not be rewritten and stays, or of an audit's finding. Answered by ``Noted``."""

    index: _Number
    group: _Number
    problem: _Text
    request: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(ChannelJson):
    """Progress of the job, which also shows that the job is alive. Answered by ``Noted``."""

    stage: _Text
    done: _Number
    total: _Number
    request: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(ChannelJson):
    """Report that the job has nothing left to do. Answered by ``Noted``, the last answer."""

    counts: _Counts = field(default_factory=dict)
    request: Literal["done"] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome(ChannelJson):
    """Answer that the leader speaks the version of the greeting, too."""

    run_id: UUID
    answer: Literal["welcome"] = "welcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderHeader(ChannelJson):
    """Order without its partitions, and their number."""

    run_id: UUID
    now_ms: int
    secret: bytes = field(repr=False)
    partitions: _Number
    answer: Literal["order"] = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(ChannelJson):
    """One partition of the order."""

    work: PartitionWork
    answer: Literal["work"] = "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedGroup(ChannelJson):
    """Group that must be left as it is, and why."""

    group: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun(ChannelJson):
    """Outputs that may be written now, ascending by group, and the groups that were refused."""

    outputs: tuple[Output, ...]
    refused: tuple[RefusedGroup, ...] = ()
    answer: Literal["begun"] = "begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(ChannelJson):
    """Answer that the output took the place of its inputs, or the reason why not."""

    committed: bool
    reason: str = ""
    answer: Literal["verdict"] = "verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(ChannelJson):
    """Answer that a report was taken note of."""

    answer: Literal["noted"] = "noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(ChannelJson):
    """Answer that the leader could not carry out the request; the run may go on."""

    problem: str
    remedy: str = ""
    answer: Literal["problem"] = "problem"


JobRequest = Hello | AskOrder | AskWork | Begin | Written | Unchanged | Failed | Progress | Done
LeaderAnswer = Welcome | OrderHeader | Work | Begun | Verdict | Noted | Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine(ChannelJson):
    """Request with its number, which grows by one each time."""

    id: _Number
    body: Annotated[JobRequest, Field(discriminator="request")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLine(ChannelJson):
    """Answer with the number of its request."""

    id: _Number
    body: Annotated[LeaderAnswer, Field(discriminator="answer")]


_REQUEST_LINE: Final = TypeAdapter(RequestLine)
_ANSWER_LINE: Final = TypeAdapter(AnswerLine)


def encode_request(number: int, body: JobRequest) -> bytes:
    """Encode a request as a line."""
    return _REQUEST_LINE.dump_json(RequestLine(id=number, body=body)) + b"\n"


def decode_request(line: bytes) -> RequestLine:
    """Parse a line of the job.

    Raises:
        WorkOrderError: the line is no request; names the field.
    """
    return _decoded(_REQUEST_LINE, line, "request")


def encode_answer(number: int, body: LeaderAnswer) -> bytes:
    """Encode an answer as a line."""
    return _ANSWER_LINE.dump_json(AnswerLine(id=number, body=body)) + b"\n"


def decode_answer(line: bytes) -> AnswerLine:
    """Parse a line of the leader.

    Raises:
        WorkOrderError: the line is no answer; names the field.
    """
    return _decoded(_ANSWER_LINE, line, "answer")


def _decoded(adapter: TypeAdapter[_T], line: bytes, what: str) -> _T:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        raise WorkOrderError(f"{what}: {first_fault(error)}", remedy="leader and job must be of one tierd") from error
