"""A configuration file without its secrets, for an issue report: shown is what the schema says to be no secret."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from tierd.config.document import read_document
from tierd.config.loading import read_with_schema
from tierd.config.places import Location, dotted
from tierd.config.secret_sources import is_secret_at, resolve_secrets
from tierd.config.section import Settings
from tierd.config.state_dir import read_config_text
from tierd.config.traversal import fields_of, is_list, is_secret, leaves, section_of
from tierd.masking import MASK, masked

_REFERENCES: Final = re.compile(r"\$\{([A-Za-z_]\w*)")
_POINTER: Final = re.compile(r"\$\{[A-Za-z_]\w*\}|credential:[\w.-]+")
_PROGRAM_WITH_ARGUMENTS: Final = ("drill", "command")
_SHORTEST_GUESS: Final = 8  # characters of a text that may be a secret, though no key says so


@dataclass(frozen=True, slots=True)
class MaskedFile:
    """The content of a file whose secrets are masked.

    Attributes:
        tree: the keys of the file with their values. ``${NAME}`` stands as it is written, without its default. Masked
            are secrets, values of keys that the schema does not know, values of mappings with free keys, arguments of
            programs, and what looks like a secret inside other texts. Empty for a file that is no YAML.
        written: dotted names of the secrets that stand in the file itself, rather than in a file or credential.
        secrets: every text that was masked in ``tree``, and the contents of the files and credentials that it names.
    """

    tree: dict[str, JsonValue]
    written: tuple[str, ...]
    secrets: tuple[str, ...] = field(repr=False)


def read_masked(path: Path, env: Mapping[str, str]) -> MaskedFile:
    """Return the file at ``path`` without its secrets; it may have faults. Blocking: reads file and secrets.

    Args:
        path: the file.
        env: variables for ``${NAME}``, and ``CREDENTIALS_DIRECTORY``.

    Raises:
        ConfigError: the file cannot be read.
    """
    text = read_config_text(path)
    document, schema = read_with_schema(text, env)
    references = {name: f"${{{name}}}" for name in _REFERENCES.findall(text)}
    written = read_document(text, references, secret_at=partial(is_secret_at, schema)).tree
    secrets = [*_secret_texts(schema, document.tree)]
    resolve_secrets(document, schema, env)
    secrets += _secret_texts(schema, document.tree)
    return MaskedFile(
        tree=_masked_section(schema, written, ()),
        written=tuple(dotted(location) for location in _written_secrets(schema, written)),
        secrets=tuple(dict.fromkeys(secrets)),
    )


def _masked_section(model: type[BaseModel] | None, tree: Mapping[str, object], place: Location) -> dict[str, JsonValue]:
    fields = fields_of(model) if model is not None else {}
    return {key: _masked_value(fields.get(key), value, (*place, key)) for key, value in tree.items()}


def _masked_value(key: FieldInfo | None, value: object, place: Location) -> JsonValue:
    if key is None:
        return _blank(value)
    if is_secret(key):
        return value if isinstance(value, str) and _POINTER.fullmatch(value) else MASK
    section = section_of(key.annotation)
    match value:
        case dict() if section is not None and not is_list(key.annotation):
            return _masked_section(section, value, place)
        case list() if section is not None and is_list(key.annotation):
            return [_masked_section(section, each, place) for each in _items(section, value)]
        case list() if place == _PROGRAM_WITH_ARGUMENTS:
            return [_plain(value[0]), *(MASK for _ in value[1:])] if value else []
        case list() if is_list(key.annotation):
            return [_plain(each) for each in value]
        case dict() | list():
            return _blank(value)
        case _:
            return _plain(value) if section is None else MASK


def _items(section: type[BaseModel], items: list[object]) -> list[dict[str, object]]:
    """Return the sections of a list, short forms expanded; what is no section of a list has no keys, and no values."""
    expanded = (section.expanded(item) if issubclass(section, Settings) else item for item in items)
    return [item if isinstance(item, dict) else {} for item in expanded]


def _plain(value: object) -> JsonValue:
    match value:
        case str():
            return masked(value)
        case bool() | int() | float():
            return value
        case _:
            return _blank(value)


def _blank(value: object) -> JsonValue:
    """Return ``value`` with its keys alone."""
    match value:
        case dict():
            return {str(key): _blank(inner) for key, inner in value.items()}
        case list():
            return [_blank(inner) for inner in value]
        case _:
            return MASK


def _written_secrets(model: type[BaseModel], tree: dict[str, object]) -> Iterator[Location]:
    for leaf in leaves(model, tree):
        value = leaf.holder[leaf.key]
        if is_secret(leaf.field) and not (isinstance(value, str) and _POINTER.fullmatch(value)):
            yield leaf.location


def _secret_texts(model: type[BaseModel], tree: Mapping[str, object], place: Location = ()) -> Iterator[str]:
    """Yield every text of ``tree`` that ``_masked_section`` masks as a whole, and addresses with a user."""
    fields = fields_of(model)
    for key, value in tree.items():
        known = fields.get(key)
        section = section_of(known.annotation) if known is not None else None
        if known is not None and is_secret(known):
            yield from _texts(value, shortest=1)
        elif section is not None and isinstance(value, dict):
            yield from _secret_texts(section, value, (*place, key))
        elif section is not None and isinstance(value, list):
            for each in _items(section, value):
                yield from _secret_texts(section, each, (*place, key))
        elif known is None or isinstance(value, dict) or (*place, key) == _PROGRAM_WITH_ARGUMENTS:
            yield from _texts(value, shortest=_SHORTEST_GUESS)
        elif isinstance(value, str) and "@" in value and "://" in value:
            yield value


def _texts(value: object, *, shortest: int) -> Iterator[str]:
    match value:
        case str() | int() | float() if len(str(value)) >= shortest and not _POINTER.fullmatch(str(value)):
            yield str(value)
        case dict():
            for inner in value.values():
                yield from _texts(inner, shortest=shortest)
        case list():
            for inner in value:
                yield from _texts(inner, shortest=shortest)
