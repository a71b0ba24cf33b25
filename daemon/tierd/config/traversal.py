"""Walks settings models by the names that YAML uses: sections, leaves, units."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tierd.config.places import Location
from tierd.config.values import Unit


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in a tree that a settings model describes, with the mapping that holds it."""

    location: Location
    holder: dict[str, object]
    field: FieldInfo

    @property
    def key(self) -> str:
        """The last part of the location."""
        return str(self.location[-1])


def yaml_name(name: str, field: FieldInfo) -> str:
    """The key of ``field`` in YAML."""
    return field.alias or name


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section by their names in YAML, in order."""
    return {yaml_name(name, field): field for name, field in model.model_fields.items()}


def section_of(annotation: object) -> type[BaseModel] | None:
    """The model of a section, or of the items of a list of sections; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for argument in get_args(annotation) if (model := section_of(argument))), None)


def is_list(annotation: object) -> bool:
    """Whether YAML has a list here."""
    return get_origin(annotation) is tuple


def unit_of(field: FieldInfo) -> Unit | None:
    """How the value, or each item of a list of them, is written; None for plain text, numbers and switches."""
    return next((item for item in (*field.metadata, *_annotations(field.annotation)) if isinstance(item, Unit)), None)


def is_secret(field: FieldInfo) -> bool:
    """Whether the value never prints."""
    return SecretStr in _nested(field.annotation)


def _nested(annotation: object) -> Iterator[object]:
    yield annotation
    for argument in get_args(annotation):
        yield from _nested(argument)


def _annotations(annotation: object) -> Iterator[object]:
    if get_origin(annotation) is Annotated:
        yield from get_args(annotation)[1:]
    for argument in get_args(annotation):
        yield from _annotations(argument)


def leaves(model: type[BaseModel], tree: dict[str, object], location: Location = ()) -> Iterator[Leaf]:
    """Every key that ``model`` knows and ``tree`` holds, sections opened."""
    for key, field in fields_of(model).items():
        section, value = section_of(field.annotation), tree.get(key)
        if section is None:
            if key in tree:
                yield Leaf((*location, key), tree, field)
        elif isinstance(value, dict):
            yield from leaves(section, value, (*location, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from leaves(section, item, (*location, key, index))


def section_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """The section that ``location`` names; None when it names none."""
    section: type[BaseModel] | None = model
    for part in location:
        if section is None:
            return None
        if isinstance(part, str):
            field = fields_of(section).get(part)
            section = section_of(field.annotation) if field else None
    return section


def field_at(model: type[BaseModel], location: Location) -> FieldInfo | None:
    """The field that ``location`` names, or that of the list it lies in."""
    names = [index for index, part in enumerate(location) if isinstance(part, str)]
    if not names:
        return None
    section = section_at(model, location[: names[-1]])
    return fields_of(section).get(str(location[names[-1]])) if section else None


def all_locations(model: type[BaseModel], location: Location = ()) -> Iterator[Location]:
    """The location of every key of the schema, list indexes left out."""
    for key, field in fields_of(model).items():
        yield (*location, key)
        if section := section_of(field.annotation):
            yield from all_locations(section, (*location, key))
