"""Messages between job and leader: one JSON object per line, requests and answers alternate.

::

    → {"id": 1, "body": {"request": "hello", "version": 1}}
    ← {"id": 1, "body": {"answer": "welcome", "run_id": "…"}}
    → {"id": 2, "body": {"request": "begin", "index": 0, "groups": [0, 1]}}
    ← {"id": 2, "body": {"answer": "problem", "problem": "…", "remedy": "…"}}

The job asks, the leader answers. The end of the stream, on either side, is the end of the run.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal, TypeVar
from uuid import UUID

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tierd.pipeline.pipeline_errors import WorkOrderError
from tierd.pipeline.planning import Output, PartitionWork

VERSION: Final = 1
MAX_REQUEST_BYTES: Final = 16 << 20  # the manifest of a segment of 2 GiB in chunks of 1 MiB has 200 KB
MAX_ANSWER_BYTES: Final = 256 << 20  # the work of one partition: 300 bytes an input, 80 an aborted transaction

_JSON: Final = ConfigDict(extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64")
_Number = Annotated[int, Field(ge=0, lt=2**63)]
_Text = Annotated[str, Field(max_length=10_000)]
_Counts = Annotated[dict[Annotated[str, Field(max_length=100)], _Number], Field(max_length=100)]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Greeting, which is the first request and no other one. Answered by ``Welcome``."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    version: int
    request: Literal["hello"] = "hello"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOrder:
    """Request for the order of the run. Answered by ``OrderHeader``."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    request: Literal["order"] = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWork:
    """Request for the work on one partition. Answered by ``Work``."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    index: _Number
    request: Literal["work"] = "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Announcement that groups are about to be rewritten. Answered by ``Begun``."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    index: _Number
    groups: tuple[_Number, ...]
    request: Literal["begin"] = "begin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Report that an output's objects are stored. Answered by ``Verdict``.

    Attributes:
        erased: pairs of the place of a key among the erased keys of the partition, ascending, and of the number of
            its records that were removed.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    output: UUID
    manifest: str
    counts: _Counts = field(default_factory=dict)
    erased: tuple[tuple[_Number, _Number], ...] = ()
    request: Literal["written"] = "written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """Report that a group is right as it is, or an audited segment sound. Answered by ``Noted``."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    index: _Number
    group: _Number
    counts: _Counts = field(default_factory=dict)
    request: Literal["unchanged"] = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Report that a group could not be rewritten and stays, or of an audit's finding. Answered by ``Noted``."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    index: _Number
    group: _Number
    problem: _Text
    request: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of the job, which also shows that the job is alive. Answered by ``Noted``."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    stage: _Text
    done: _Number
    total: _Number
    request: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Report that the job has nothing left to do. Answered by ``Noted``, the last answer."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    counts: _Counts = field(default_factory=dict)
    request: Literal["done"] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Answer that the leader speaks the version of the greeting, too."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    run_id: UUID
    answer: Literal["welcome"] = "welcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderHeader:
    """Order without its partitions, and their number."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    run_id: UUID
    now_ms: int
    secret: bytes = field(repr=False)
    partitions: _Number
    answer: Literal["order"] = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One partition of the order."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    work: PartitionWork
    answer: Literal["work"] = "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedGroup:
    """Group that must be left as it is, and why."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    group: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Outputs that may be written now, ascending by group, and the groups that were refused."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    outputs: tuple[Output, ...]
    refused: tuple[RefusedGroup, ...] = ()
    answer: Literal["begun"] = "begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Answer that the output took the place of its inputs, or the reason why not."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    committed: bool
    reason: str = ""
    answer: Literal["verdict"] = "verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Answer that a report was taken note of."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    answer: Literal["noted"] = "noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Answer that the leader could not carry out the request; the run may go on."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    problem: str
    remedy: str = ""
    answer: Literal["problem"] = "problem"


Request = Hello | AskOrder | AskWork | Begin | Written | Unchanged | Failed | Progress | Done
Answer = Welcome | OrderHeader | Work | Begun | Verdict | Noted | Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """Request with its number, which grows by one each time."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    id: _Number
    body: Annotated[Request, Field(discriminator="request")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLine:
    """Answer with the number of its request."""

    __pydantic_config__: ClassVar[ConfigDict] = _JSON

    id: _Number
    body: Annotated[Answer, Field(discriminator="answer")]


_REQUEST_LINE: Final = TypeAdapter(RequestLine)
_ANSWER_LINE: Final = TypeAdapter(AnswerLine)


def encode_request(number: int, body: Request) -> bytes:
    """Encode a request as a line."""
    return _REQUEST_LINE.dump_json(RequestLine(id=number, body=body)) + b"\n"


def decode_request(line: bytes) -> RequestLine:
    """Parse a line of the job.

    Raises:
        WorkOrderError: the line is no request; names the field.
    """
    return _decoded(_REQUEST_LINE, line, "request")


def encode_answer(number: int, body: Answer) -> bytes:
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
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{what}: {'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"
        raise WorkOrderError(problem, remedy="leader and job must be of one tierd") from error
