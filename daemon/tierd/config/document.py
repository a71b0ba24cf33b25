"""YAML text to plain values, with the line and column of every key and value, and the environment expanded. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tierd.config.places import Location, dotted

_MAX_VALUES = 10_000  # aliases of aliases grow exponentially
_MAX_DEPTH = 32
_MAX_EXCERPT = 80
_REFERENCE = re.compile(r"\$(?:(?P<escape>\$)|\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}|(?P<broken>\{))")
_NAMES = re.compile(r"\b(alias|anchor|tag handle) ('[^']*'|\"[^\"]*\")")  # a password that begins with * & or !
_KIND = r"\1"
_HALF = re.compile("[\ud800-\udfff]")
_TAG = "tag:yaml.org,2002:"


class ExpandedText(str):
    """A value that came out of ``${NAME}``: text that may stand for a number or a switch."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class FilePlace:
    """A position in the file; line and column start at 1."""

    line: int
    column: int


DocumentFault = tuple[FilePlace | None, str]
"""Place, as far as it is known, and message."""


@dataclass(slots=True)
class Document:
    """Content of a YAML file, with the place of every key and value.

    Attributes:
        tree: mappings, lists and scalars; null is left out, as if its key were not there.
        keys: place at which the key or list item of a location begins.
        values: place at which the value of a location begins.
        spoilt: locations whose value was left out of ``tree`` because of a fault, with that fault; None where the
            fault is noted at another location.
    """

    tree: dict[str, object] = field(default_factory=dict)
    keys: dict[Location, FilePlace] = field(default_factory=dict)
    values: dict[Location, FilePlace] = field(default_factory=dict)
    spoilt: dict[Location, DocumentFault | None] = field(default_factory=dict)
    _others: list[DocumentFault] = field(default_factory=list)

    @property
    def faults(self) -> list[DocumentFault]:
        """Return every fault found so far."""
        return [*self._others, *(fault for fault in self.spoilt.values() if fault)]

    def fault(self, place: FilePlace | None, message: str) -> None:
        """Note a fault at ``place``."""
        self._others.append((place, message))

    def spoil(self, location: Location, message: str) -> None:
        """Note that the value at ``location`` cannot be used; later faults of the same value are left out."""
        self.spoilt[location] = (self.values.get(location), f"{dotted(location)}: {message}")

    def nearest_place(self, location: Location) -> FilePlace | None:
        """Return the place of the value at ``location``, or else of the innermost section around it."""
        for length in range(len(location), 0, -1):
            if (
                place := self.values.get(location[:length])
                if length == len(location)
                else self.keys.get(location[:length])
            ):
                return place
        return FilePlace(1, 1) if self.values else None


def read_document(
    text: str, env: Mapping[str, str], *, secret_at: Callable[[Location], bool] = lambda _: False
) -> Document:
    """Parse one YAML document. A syntax error is the only fault of its file.

    Args:
        text: the file.
        env: variables for ``${NAME}``.
        secret_at: returns True for the location of a secret. No fault repeats the text there, and a mapping or a
            list in its place is not read.
    """
    document = Document()
    try:
        reader = YAML(typ="rt")
        reader.composer.warn_double_anchors = False  # the warning would print the lines of both
        root = reader.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        document.fault(_place(mark) if mark else None, f"this is not YAML: {_NAMES.sub(_KIND, reason)}")
        return document
    except YAMLError as error:
        document.fault(None, f"this is not YAML: {str(error).splitlines()[0]}")
        return document
    except RecursionError:
        document.fault(None, "the file is nested too deeply")
        return document
    if root is None:
        return document
    if not isinstance(root, MappingNode):
        document.fault(_place(root.start_mark), "the file must hold keys and values, such as log_dirs: [...]")
        return document
    _YamlReader(document, env, secret_at).mapping(root, ())
    return document


def _place(mark: StringMark) -> FilePlace:
    return FilePlace(mark.line + 1, mark.column + 1)


class _YamlReader:
    """Reader of the nodes of one file."""

    def __init__(self, document: Document, env: Mapping[str, str], secret_at: Callable[[Location], bool]) -> None:
        self._document = document
        self._env = env
        self._secret_at = secret_at
        self._left = _MAX_VALUES

    def mapping(self, node: MappingNode, location: Location) -> dict[str, object]:
        tree = self._document.tree if not location else {}
        first_at: dict[str, FilePlace] = {}
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark)
            try:
                key = _whole_characters(str(key_node.value))
            except ValueError as error:
                self._document.fault(place, f"{f'a key of {dotted(location)}' if location else 'a key'}: {error}")
                continue
            if key in first_at:
                earlier = first_at[key].line
                message = f"{dotted((*location, key))} is set twice, first in line {earlier}: remove one"
                self._document.fault(place, message)
                continue
            first_at[key] = place
            self._document.keys[*location, key] = place
            value = self._value(value_node, (*location, key))
            if value is not None:
                tree[key] = value
        return tree

    def _value(self, node: Node, location: Location) -> object:
        self._document.values[location] = _place(node.start_mark)
        self._left -= 1
        if self._left < 0 or len(location) > _MAX_DEPTH:
            if self._left >= -1:
                self._document.spoil(location, "the file is nested too deeply or repeats itself")
            return None
        match node:
            case MappingNode() | SequenceNode() if self._secret_at(location):
                self._document.spoil(location, "is no text: put it in quotes")
                return None
            case MappingNode():
                return self.mapping(node, location)
            case SequenceNode():
                return self._sequence(node, location)
            case ScalarNode():
                return self._scalar(node, location)
            case _:
                raise AssertionError(f"{type(node).__name__} is no kind of YAML node")

    def _sequence(self, node: SequenceNode, location: Location) -> list[object]:
        items: list[object] = []
        for index, item in enumerate(node.value):
            self._document.keys[*location, index] = _place(item.start_mark)
            items.append(self._value(item, (*location, index)))
        return items

    def _scalar(self, node: ScalarNode, location: Location) -> object:
        try:
            written = _whole_characters(str(node.value))
            expanded = expand(written, self._env)
        except ValueError as error:
            self._document.spoil(location, str(error))
            return None
        if expanded != written:
            return None if not expanded and node.style is None else ExpandedText(expanded)
        try:
            return _plain_value(node, written)
        except ValueError:
            shown = "this" if self._secret_at(location) else _excerpt(written)
            self._document.spoil(location, f"{shown} is no value that YAML knows: put it in quotes")
            return None


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}`` from ``env``, and ``$$`` by ``$``; any other ``$`` stays.

    Raises:
        ValueError: a name without value and default, or a brace that is not closed.
    """
    missing = [
        m["name"] for m in _REFERENCE.finditer(text) if m["name"] and m["default"] is None and m["name"] not in env
    ]
    if missing:
        names = ", ".join(f"${{{name}}}" for name in missing)
        raise ValueError(f"{names} is not set in the environment: set it, or write ${{{missing[0]}:-default}}")
    if any(m["broken"] for m in _REFERENCE.finditer(text)):
        raise ValueError("${ begins no ${NAME} or ${NAME:-default}: close it, or write $$ for a dollar sign")
    return _REFERENCE.sub(lambda m: "$" if m["escape"] else env.get(m["name"]) or m["default"] or "", text)


def _whole_characters(text: str) -> str:
    r"""Join halves that a JSON writer made of a character beyond U+FFFF, such as ``"\\ud83d\\ude00"``.

    Raises:
        ValueError: one half has no other half beside it.
    """
    if text.isascii() or not _HALF.search(text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError("an escape such as \\ud83d is half a character: write the character itself") from None


def _excerpt(text: str) -> str:
    return repr(text) if len(text) <= _MAX_EXCERPT else f"{text[:_MAX_EXCERPT]!r}…"


def _plain_value(node: ScalarNode, text: str) -> object:
    match str(node.tag).removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text, {"0x": 16, "0o": 8, "0b": 2}.get(text.lstrip("+-")[:2].lower(), 10))
        case "float":
            return float(text.replace("_", ""))
        case _:
            return text
