"""Faults that pydantic found, in the words of the configuration file. Pure."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tierd.config.partial_sections import rule_faults
from tierd.config.places import Location, PlacedFaultsError, dotted
from tierd.config.traversal import all_locations, field_at, fields_of, secret_of_file, section_at, unit_of
from tierd.config.units import format_bytes, format_duration
from tierd.config.values import Unit, shown

_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


def explain_all(
    model: type[BaseModel], error: ValidationError, tree: Mapping[str, object], spoilt: Mapping[Location, object]
) -> list[tuple[Location, str]]:
    """Translate the findings of pydantic in ``tree`` into faults, and add faults of rules that pydantic did not reach.

    Args:
        model: the whole file.
        error: from the validation of ``tree``.
        tree: the content of the file.
        spoilt: locations whose values are missing in ``tree`` because of a fault that is noted already.
    """
    found = [fault for details in error.errors() for fault in explain(model, details)]
    rules = rule_faults(model, tree, spoilt)
    return list(dict.fromkeys([*found, *((place, f"{dotted(place)}: {message}") for place, message in rules)]))


def explain(model: type[BaseModel], error: ErrorDetails) -> Iterator[tuple[Location, str]]:
    """Yield the faults of one finding: location, message, and remedy."""
    location: Location = error["loc"]
    context: Mapping[str, object] = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            yield location, unknown_key(model, location)
        case "missing":
            field = field_at(model, location)
            yield location, f"{dotted(location)} is missing: {field.description if field else 'it has no default'}"
        case "value_error" if isinstance(context.get("error"), PlacedFaultsError):
            return  # a rule between keys: ``rule_faults`` checks it, also in files with other faults
        case "too_short" if isinstance(error["input"], list) and error["input"]:
            return  # pydantic counts sound entries only; the others have faults of their own
        case _ if secret_of_file(model, location):
            yield location, f"{dotted(location)}: names no file: begin it with /, or with ./ if it is beside this file"
        case _:
            yield location, f"{dotted(location)}: {_reason(model, location, error, context)}"


def unknown_key(model: type[BaseModel], location: Location) -> str:
    """Return the fault of an unknown key, with the key that was probably meant.

    Candidates are the same name further in, then a similar name in the section, then the same name elsewhere.
    """
    key, section = str(location[-1]), section_at(model, location[:-1])
    message = f"unknown key {dotted(location)}"
    same_name = [other for other in all_locations(model) if other[-1] == key]
    below = [other for other in same_name if other[: len(location) - 1] == location[:-1]]
    near = get_close_matches(key, list(fields_of(section)) if section else [], n=1)
    if meant := below or [(*location[:-1], name) for name in near] or same_name:
        return f"{message}: did you mean {' or '.join(map(dotted, meant))}?"
    known = ", ".join(fields_of(section)) if section else ""
    return f"{message}: remove it; {dotted(location[:-1]) or 'the file'} may hold {known}" if known else message


def _reason(model: type[BaseModel], location: Location, error: ErrorDetails, context: Mapping[str, object]) -> str:
    kind = error["type"]
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{words} {_limit(model, location, context[name])}"
    match kind:
        case "value_error":
            return str(context["error"])
        case "literal_error":
            expected = str(context["expected"]).replace("'", "")
            near = get_close_matches(str(error["input"]), expected.replace(" or ", ", ").split(", "), n=1)
            return f"{shown(error['input'])} is not {expected}" + (f": did you mean {near[0]}?" if near else "")
        case "model_type" | "model_attributes_type":
            return _section_wanted(model, location)
        case "tuple_type":
            return f"must be a list, such as {_list_example(model, location)}"
        case "dict_type":
            return "must be a mapping, such as {name: value}"
        case "too_short" if not isinstance(error["input"], str):
            return "must have at least one entry"
        case "too_short" | "string_too_short":
            return "must not be empty"
        case "string_type":
            return "is no text: put it in quotes"
        case _:
            return error["msg"]


def _section_wanted(model: type[BaseModel], location: Location) -> str:
    section = section_at(model, location)
    assert section is not None, "only a section is expected to be one"
    wanted = f"must be a section with keys such as {next(iter(fields_of(section)))}"
    return f"{wanted}: write - {_entry_example(section)}" if isinstance(location[-1], int) else wanted


def _list_example(model: type[BaseModel], location: Location) -> str:
    field, section = field_at(model, location), section_at(model, location)
    if section is not None:
        return f"[{{{_entry_example(section)}}}]"
    return str(field.examples[0]) if field and field.examples else "[a, b]"


def _entry_example(section: type[BaseModel]) -> str:
    """Return the required keys of an entry of a list of sections, with the examples of the schema."""
    needed = {key: field for key, field in fields_of(section).items() if field.is_required()}
    return ", ".join(f"{key}: {field.examples[0] if field.examples else '...'}" for key, field in needed.items())


def _limit(model: type[BaseModel], location: Location, limit: object) -> str:
    field = field_at(model, location)
    match unit_of(field) if field else None, limit:
        case Unit.DURATION, int() | float():
            return format_duration(limit)
        case Unit.SIZE | Unit.RATE, int():
            return format_bytes(limit)
        case _:
            return str(limit)
