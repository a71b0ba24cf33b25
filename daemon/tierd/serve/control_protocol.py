"""The protocol of the control socket: a verb has one type of request and one type of answer, and one line carries each.

::

    → {"command": "undelete", "partitions": ["orders-0"], "options": {"dry_run": true}}
    ← {"ok": true, "answer": {"partition": "orders-0", "dry_run": true, "segments": []}}
    ← {"ok": false, "error": "…", "remedy": "…", "refused": true}

A request's fields ``partition`` and ``partitions`` travel as ``partitions``, its other fields as ``options``. Pure.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, RootModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tierd.errors import TierError, TierErrorCode

_SAME_VERSION: Final = "use the tierd command of the daemon's version"
_ONE, _SEVERAL = "partition", "partitions"


class ControlRequestLine(BaseModel):
    """One line from a client, before its verb is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str
    partitions: tuple[str, ...] = ()
    options: dict[str, JsonValue] = {}


class ControlAnswerLine(BaseModel):
    """One line to a client."""

    model_config = ConfigDict(frozen=True)  # unknown fields of a newer daemon are ignored

    ok: bool
    answer: JsonValue = None
    error: str = ""
    remedy: str = ""
    refused: bool = False


class ControlRequest(BaseModel):
    """A request of one verb. An unknown field is refused."""

    # A command uses one verb of thirty: the validators of the others would take longer than the question.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ControlAnswer(BaseModel):
    """An answer to one verb. Fields that a newer daemon adds are kept for ``--json``."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the object that ``--json`` prints: the fields that the daemon gave, in the order of the type."""
        return self.model_dump(mode="json", exclude_unset=True)


ItemT = TypeVar("ItemT")


class ControlListAnswer(RootModel[tuple[ItemT, ...]], Generic[ItemT]):
    """An answer that is a list."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    def to_json(self) -> list[JsonValue]:
        """Return the list that ``--json`` prints."""
        items: list[JsonValue] = self.model_dump(mode="json", exclude_unset=True)
        return items


RequestT = TypeVar("RequestT", bound=ControlRequest)
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class VerbHandler:
    """The daemon's side of one verb: ``answer`` takes a request line and returns the JSON of the answer."""

    verb: str
    answer: Callable[[ControlRequestLine], Awaitable[JsonValue]]


@dataclass(frozen=True, slots=True)
class ControlVerb(Generic[RequestT, AnswerT]):
    """One verb of the control socket, with the types that the command line and the daemon share."""

    name: str
    request_type: type[RequestT]
    answer_type: TypeAdapter[AnswerT]

    def request_line(self, request: RequestT) -> ControlRequestLine:
        """Return ``request`` as a line; a field that has its default is left out."""
        options: dict[str, JsonValue] = request.model_dump(mode="json", exclude_defaults=True)
        one, several = options.pop(_ONE, None), options.pop(_SEVERAL, ())
        return ControlRequestLine.model_validate(
            {"command": self.name, "partitions": several if one is None else [one], "options": options}
        )

    def parse_request(self, line: ControlRequestLine) -> RequestT:
        """Return the request of ``line``.

        Raises:
            TierError: a field is unknown, missing or wrong; the message names it.
        """
        given: dict[str, object] = dict(line.options)
        known = self.request_type.model_fields
        if misplaced := {_ONE, _SEVERAL} & given.keys():
            raise self._fault(f"no such option: {', '.join(sorted(misplaced))}")
        if _ONE in known:
            if len(line.partitions) != 1:
                raise self._fault(f"partitions: {len(line.partitions)} partitions were named, not one")
            (given[_ONE],) = line.partitions
        elif _SEVERAL in known:
            given[_SEVERAL] = line.partitions
        elif line.partitions:
            raise self._fault("partitions: this verb takes none")
        try:
            return self.request_type.model_validate(given)
        except ValidationError as error:
            raise self._fault("; ".join(map(_named_request_fault, _details(error)))) from error

    def parse_answer(self, answer: JsonValue) -> AnswerT:
        """Return the answer that a line carried.

        Raises:
            TierError: a field is missing or wrong; the message names it.
        """
        try:
            return self.answer_type.validate_python(answer)
        except ValidationError as error:
            problem = "; ".join(map(_named_fault, _details(error)[:3]))
            raise TierError(
                f"the daemon's answer to {self.name} cannot be understood: {problem}",
                remedy=_SAME_VERSION,
                code=TierErrorCode.CONTROL,
            ) from error

    def handled_by(self, carry_out: Callable[[RequestT], Awaitable[AnswerT]]) -> VerbHandler:
        """Return the handler that parses a request, has it carried out and encodes the answer."""

        async def answer(line: ControlRequestLine) -> JsonValue:
            return self.encode_answer(await carry_out(self.parse_request(line)))

        return VerbHandler(self.name, answer)

    def encode_answer(self, answer: AnswerT) -> JsonValue:
        """Return the JSON of ``answer``."""
        encoded: JsonValue = self.answer_type.dump_python(answer, mode="json", exclude_unset=True)
        return encoded

    def _fault(self, problem: str) -> TierError:
        return TierError(f"{self.name}: {problem}", remedy=_SAME_VERSION, code=TierErrorCode.CONTROL)


def _details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_input=False, include_context=False)


def _named_request_fault(detail: ErrorDetails) -> str:
    """Return a fault with the place that its field has in the line."""
    if detail["type"] == "extra_forbidden":
        return f"no such option: {_place(detail)}"
    field = detail["loc"][0] if detail["loc"] else ""
    return _named_fault(detail) if field in (_ONE, _SEVERAL) else f"options.{_named_fault(detail)}"


def _named_fault(detail: ErrorDetails) -> str:
    return f"{_place(detail)}: {detail['msg'].removeprefix('Value error, ')}"


def _place(detail: ErrorDetails) -> str:
    return ".".join(map(str, detail["loc"])) or "answer"
