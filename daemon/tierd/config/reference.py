"""Generator of ``docs/configuration.md`` and ``config/tierd.yaml``: ``python -m tierd.config.reference``."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tierd.config.places import Location, dotted
from tierd.config.schema import TierdConfig
from tierd.config.traversal import fields_of, is_list, is_secret, section_of, unit_of
from tierd.config.units import format_bytes, format_duration
from tierd.config.values import Unit

_YAML_HEAD = """\
# Settings of tierd: every key with its description. A line with a # shows the default of its key, or an example if the
# key has no default. A line without a # sets a key that has no default. Check the file with `tierd check-config`. The
# rules for values are in docs/configuration.md. `make docs` generates this file.
"""
_MARKDOWN_HEAD = """\
# Configuration

tierd has one YAML file, `/etc/tierd/tierd.yaml`; `--config` or `TIERD_CONFIG` names another file. `make docs` generates
this page and [config/tierd.yaml](../config/tierd.yaml), a file to start from, out of the schema.

## Rules

- **Strict.** An unknown key, a wrong type, a value out of range and a key that is set twice are faults. The message of
  a fault has file, line and column and, for an unknown key, the most similar known name. tierd reports all faults of
  the file at once, with exit code 2. `tierd check-config` reports them without a start of the daemon.
- **Durations** have a unit: `500ms`, `30s`, `15m`, `1h30m`, `7d`. A number without a unit is a fault, except `0`.
- **Sizes** are `512KiB`, `4MiB`, `1GiB` (powers of 1024) or `1kB`, `1MB`, `1GB` (powers of 1000); a number without a
  unit is bytes. For no limit, write `unlimited` or Kafka's `-1`, where the key allows this.
- **Paths** are absolute, or begin with `./` or `../` and are then relative to the directory of the file.
- **Patterns** are Python regular expressions that must match the whole name.
- **Environment.** tierd replaces `${NAME}` in a value by the variable. `${NAME:-default}` has a default for a variable
  that is unset or empty, and `$$` stands for a dollar sign. A variable without value and without default is a fault.
  Inside `{…}` or `[…]`, put such a value in quotes. tierd does not replace variables in keys.
- **Secrets** are masked as `********` in all output, also in messages of the clients of stores. There are four ways
  to give a secret: in the file; from the environment; in a file that the same key with `_file` names; or, under systemd
  with `LoadCredential=NAME:/path`, as `credential:NAME`.
- **Empty values.** An empty value (`region:`) means the same as a missing key.
- **Reload.** `systemctl reload tierd` (SIGHUP) reads the file again. `topics`, `logging`, `copy.concurrency`,
  `expire.concurrency`, `kafka.access`, `kafka.quarantine`, `kafka.quotas`, `kafka.sasl`, `kafka.tls`, `push.enabled`,
  `push.peers`, `push.standbys`, `push.tls` and `push.topics` take effect at once. The log names every other
  changed key; these need a restart. If the file has faults, tierd keeps the old
  settings, logs the faults, and sets `tierd_config_reload_success` to 0.

## Keys
"""
_BOUND_WORDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}


def render_yaml() -> str:
    """Return the text of ``config/tierd.yaml``: it loads as it is, and says what is needed first."""
    return _YAML_HEAD + "".join(f"{line}\n" for line in _yaml_section(TierdConfig, indent="", active=True))


def render_markdown() -> str:
    """Return the text of ``docs/configuration.md``."""
    return _MARKDOWN_HEAD + "".join(f"{line}\n" for line in _markdown_rows(TierdConfig))


def _yaml_section(model: type[BaseModel], *, indent: str, active: bool) -> Iterator[str]:
    for key, field in fields_of(model).items():
        section = section_of(field.annotation)
        wanted = active and _is_written(key, field)
        mark = "" if wanted else "#"
        if not indent:
            yield ""
        yield f"{indent}# {field.description}"
        if section is None:
            yield f"{indent}{mark}{key}: {_yaml_value(field)}".rstrip()
        elif is_list(field.annotation):
            yield f"{indent}{mark}{key}:"
            yield from _list_items(_yaml_section(section, indent=indent + "    ", active=wanted), indent + "  ")
        else:
            yield f"{indent}{mark}{key}:"
            yield from _yaml_section(section, indent=indent + "  ", active=wanted)


def _is_written(key: str, field: FieldInfo) -> bool:
    """Return True if the shipped file sets the key: a required one, or ``s3``, since that file tiers to S3."""
    return field.is_required() or key == "s3"


def _list_items(lines: Iterable[str], indent: str) -> Iterator[str]:
    """Put the dash of a list's one item before its first key."""
    dashed = False
    for line in lines:
        text = line.removeprefix(indent + "  ")
        if dashed:
            yield line
        elif text.startswith("# "):
            yield f"{indent}{text}"
        else:
            dashed = True
            yield f"{indent}#- {text[1:]}" if text.startswith("#") else f"{indent}- {text}"


def _yaml_value(field: FieldInfo) -> str:
    if field.examples:
        return str(field.examples[0])
    default = field.default
    if default is None and unit_of(field) not in (Unit.SIZE, Unit.RATE):
        return ""  # empty is as good as absent
    return _written(default, field)


def _written(value: object, field: FieldInfo) -> str:
    match unit_of(field), value:
        case Unit.DURATION, int() | float():
            return format_duration(value)
        case Unit.RETENTION | Unit.RETENTION_SIZE, -1 | -2:
            return str(value)
        case Unit.RETENTION, int():
            return format_duration(value / 1000)
        case Unit.SIZE | Unit.RATE | Unit.RETENTION_SIZE, int() | None:
            return format_bytes(value)
        case _, bool():
            return str(value).lower()
        case _, tuple():
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case _, dict():
            return "{}"
        case _, "":
            return '""'
        case _:
            return str(value)


def _markdown_rows(model: type[BaseModel], location: Location = ()) -> Iterator[str]:
    plain = {key: field for key, field in fields_of(model).items() if section_of(field.annotation) is None}
    if plain:
        yield ""
        yield "| key | type | default | what it does |"
        yield "|---|---|---|---|"
    for key, field in plain.items():
        yield f"| `{key}` | {_type(field)} | {_default(field)} | {_cell(str(field.description))} |"
    for key, field in fields_of(model).items():
        section = section_of(field.annotation)
        if section:
            name = dotted((*location, key)) + ("[]" if is_list(field.annotation) else "")
            needed = " Required." if field.is_required() else ""
            yield ""
            yield f"### `{name}`"
            yield ""
            yield f"{_sentence(section.__doc__ or '')}{needed}"
            yield from _markdown_rows(section, (*location[:-1], *location[-1:], name.split(".")[-1]))


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    if field.default is None and unit_of(field) not in (Unit.SIZE, Unit.RATE):
        return "none"
    return f"`{_cell(_written(field.default, field))}`"


def _type(field: FieldInfo) -> str:
    unit = unit_of(field)
    choices = [str(choice) for choice in get_args(_literal(field.annotation))]
    if choices:
        kind = " or ".join([*([unit.value] if unit else []), *(f"`{choice}`" for choice in choices)])
    elif is_secret(field):
        kind = "secret"
    elif unit:
        kind = unit.value
    elif get_origin(field.annotation) is dict:
        kind = "map of text to text"
    else:
        kind = next(words for plain, words in _PLAIN.items() if plain in _types(field.annotation))
    bounds = ", ".join(_bounds(field))
    return ("list of " if is_list(field.annotation) else "") + kind + (f", {bounds}" if bounds else "")


_PLAIN: dict[object, str] = {bool: "true or false", int: "whole number", float: "number", str: "text"}


def _types(annotation: object) -> Iterator[object]:
    yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)


def _literal(annotation: object) -> object:
    return next((found for found in _types(annotation) if get_origin(found) is Literal), None)


def _bounds(field: FieldInfo) -> Iterator[str]:
    for item in field.metadata:
        for name, words in _BOUND_WORDS.items():
            limit = getattr(item, name, PydanticUndefined)
            if limit is not PydanticUndefined:
                yield f"{words} {_written(limit, field)}"


def main(root: Path) -> None:
    """Write both files below ``root``, the root of the repository."""
    (root / "docs" / "configuration.md").write_text(render_markdown())
    (root / "config" / "tierd.yaml").write_text(render_yaml())


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ["."]))
