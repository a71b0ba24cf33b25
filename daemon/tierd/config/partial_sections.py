"""Rules between keys for a file with faulty values: the rules are checked for the values that can be read. Pure."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from tierd.config.places import Location, PlacedFaultsError
from tierd.config.section import Settings
from tierd.config.traversal import is_list, section_of, sections_in, yaml_name


def rule_faults(
    model: type[BaseModel], tree: Mapping[str, object], spoilt: Mapping[Location, object]
) -> list[tuple[Location, str]]:
    """Return the faults that the rules of ``model`` and of the sections in it find.

    A rule that needs a value which is faulty by itself finds nothing: its result depends on the corrected value.

    Args:
        model: the whole file, or a section.
        tree: the content of the file.
        spoilt: locations whose values are missing in ``tree`` because of a fault.
    """
    return list(_faults(_partial(model, tree, (), spoilt), ()))


def _partial(
    model: type[BaseModel], tree: Mapping[str, object], location: Location, spoilt: Mapping[Location, object]
) -> BaseModel:
    """Build a section without the values that cannot be used; to read one of those raises AttributeError."""
    values: dict[str, object] = {}
    unusable: list[str] = []
    for name, field in model.model_fields.items():
        key = yaml_name(name, field)
        place = (*location, key)
        if place in spoilt or (key not in tree and field.is_required()):
            unusable.append(name)
        elif key in tree:
            try:
                values[name] = _value(field, tree[key], place, spoilt)
            except ValidationError:
                unusable.append(name)
    section = model.model_construct(None, **values)
    for name in unusable:
        section.__dict__.pop(name, None)
    return section


def _value(field: FieldInfo, value: object, place: Location, spoilt: Mapping[Location, object]) -> object:
    section = section_of(field.annotation)
    if section is not None and isinstance(value, list) and is_list(field.annotation):
        items = (section.expanded(item) if issubclass(section, Settings) else item for item in value)
        return tuple(
            _partial(section, item if isinstance(item, dict) else {}, (*place, index), spoilt)
            for index, item in enumerate(items)
        )
    if section is not None and isinstance(value, dict) and not is_list(field.annotation):
        return _partial(section, value, place, spoilt)
    adapter: TypeAdapter[object] = TypeAdapter(field.rebuild_annotation())
    return adapter.validate_python(value, context={"file": True})


def _faults(section: BaseModel, location: Location) -> Iterator[tuple[Location, str]]:
    for name, field in type(section).model_fields.items():
        for place, inner in sections_in(section.__dict__.get(name), (*location, yaml_name(name, field))):
            yield from _faults(inner, place)
    for rule in type(section).__pydantic_decorators__.model_validators.values():
        if rule.info.mode != "after":
            continue
        try:
            rule.func(section)
        except PlacedFaultsError as error:
            yield from (((*location, *inner), message) for inner, message in error.faults)
        except AttributeError as error:
            if not _is_unusable(error):
                raise


def _is_unusable(error: AttributeError) -> bool:
    """Return True where the attribute is a key of a partial section whose value cannot be used."""
    return isinstance(error.obj, BaseModel) and error.name in type(error.obj).model_fields
