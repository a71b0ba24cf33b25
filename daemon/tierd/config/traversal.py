"""Traversal of settings models by the names that YAML uses: sections, leaves, units."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tierd.config.places import Location
from tierd.config.values import Unit, WrittenPath


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in a tree that a settings model describes, with the mapping that holds it."""

    location: Location
    holder: dict[str, object]
    field: FieldInfo

    @property
    def key(self) -> str:
        """Return the last part of the location."""
        return str(self.location[-1])


def yaml_name(name: str, field: FieldInfo) -> str:
    """Return the key of ``field`` in YAML."""
    return field.alias or name


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by their names in YAML, in order."""
    return {yaml_name(name, field): field for name, field in model.model_fields.items()}


def section_of(annotation: object) -> type[BaseModel] | None:
    """Return the model of a section, or of the items of a list of sections; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for argument in get_args(annotation) if (model := section_of(argument))), None)


def is_list(annotation: object) -> bool:
    """Return True if YAML has a list for a value of this type."""
    return get_origin(annotation) is tuple


def unit_of(field: FieldInfo) -> Unit | None:
    """Return the notation of the value, or of each item of a list; None for plain text, numbers and switches."""
    return next((item for item in (*field.metadata, *_annotations(field.annotation)) if isinstance(item, Unit)), None)


def is_secret(field: FieldInfo) -> bool:
    """Return True if the value is a secret, which is not printed."""
    return SecretStr in _nested(field.annotation)


def is_written(field: FieldInfo) -> bool:
    """Return True for a path that tierd writes at."""
    return any(isinstance(item, WrittenPath) for item in (*field.metadata, *_annotations(field.annotation)))


def secret_of_file(model: type[BaseModel], location: Location) -> str | None:
    """Return the key of the secret that the ``*_file`` key at ``location`` stands for; None for any other key."""
    key, section = str(location[-1]), section_at(model, location[:-1])
    secret = key.removesuffix("_file")
    field = fields_of(section).get(secret) if section and secret != key else None
    return secret if field and is_secret(field) else None


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
    """Yield every key that ``model`` knows and ``tree`` holds, those of inner sections too."""
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


def anchor_paths(tree: dict[str, object], model: type[BaseModel], directory: Path) -> None:
    """Replace every path in ``tree`` that begins with ``./`` or ``../`` by the path that it is from ``directory``."""
    for leaf in leaves(model, tree):
        value = leaf.holder[leaf.key]
        if unit_of(leaf.field) is Unit.PATH and isinstance(value, str) and value.split("/")[0] in (".", ".."):
            leaf.holder[leaf.key] = os.path.normpath(directory / value)


def leaf_values(section: BaseModel, location: Location = ()) -> Iterator[tuple[Location, FieldInfo, object]]:
    """Yield location, field and value of every key of ``section`` that has a value, also in inner sections.

    A section may be a partial one: the keys whose values could not be read are left out.
    """
    for name, field in type(section).model_fields.items():
        value, place = section.__dict__.get(name), (*location, yaml_name(name, field))
        if section_of(field.annotation) is not None:
            for inner_place, inner in sections_in(value, place):
                yield from leaf_values(inner, inner_place)
        elif value is not None:
            yield place, field, value


def sections_in(value: object, place: Location) -> Iterator[tuple[Location, BaseModel]]:
    """Yield location and section of each section that ``value``, the value of a key at ``place``, is or has in a list.

    A value that is neither, as that of a section that is left out, has none.
    """
    if isinstance(value, BaseModel):
        yield place, value
    elif isinstance(value, tuple):
        yield from (((*place, index), item) for index, item in enumerate(value) if isinstance(item, BaseModel))


def secrets_of(section: BaseModel) -> list[str]:
    """Return the secret values of a section and of the sections in it."""
    return [value.get_secret_value() for _, _, value in leaf_values(section) if isinstance(value, SecretStr)]


def section_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """Return the section that ``location`` names; None when it names none."""
    section: type[BaseModel] | None = model
    for part in location:
        if section is None:
            return None
        if isinstance(part, str):
            field = fields_of(section).get(part)
            section = section_of(field.annotation) if field else None
    return section


def field_at(model: type[BaseModel], location: Location) -> FieldInfo | None:
    """Return the field that ``location`` names, or that of the list around it."""
    names = [index for index, part in enumerate(location) if isinstance(part, str)]
    if not names:
        return None
    section = section_at(model, location[: names[-1]])
    return fields_of(section).get(str(location[names[-1]])) if section else None


def all_locations(model: type[BaseModel], location: Location = ()) -> Iterator[Location]:
    """Yield the location of every key of the schema, without list indexes."""
    for key, field in fields_of(model).items():
        yield (*location, key)
        if section := section_of(field.annotation):
            yield from all_locations(section, (*location, key))
