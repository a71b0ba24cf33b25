"""The schema of a file that names backends of other packages, with the settings of these backends."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, Field, create_model

from tierd.config.connectors import METADATA, OBJECT_STORE, BackendKind, ConnectorError, PluginSettings, find_connector
from tierd.config.places import Location
from tierd.config.schema import TierdConfig
from tierd.config.sections.metadata_settings import MetadataSettings
from tierd.config.sections.remote_settings import RemoteSettings

_Section = TypeVar("_Section", bound=BaseModel)


def plugged_schema(tree: Mapping[str, object]) -> tuple[type[TierdConfig], dict[Location, str]]:
    """Return the schema of the file, and the faults of its backend names. Blocking: imports the packages."""
    plugged: dict[BackendKind, type[PluginSettings]] = {}
    faults: dict[Location, str] = {}
    for kind in (METADATA, OBJECT_STORE):
        name = _named(tree, kind)
        if name is None or name in kind.built_in:
            continue
        try:
            plugged[kind] = find_connector(kind, name).settings
        except ConnectorError as error:
            faults[kind.section, "backend"] = str(error)
    return (_with(plugged) if plugged else TierdConfig), faults


def with_sections(tree: dict[str, object], schema: type[TierdConfig]) -> None:
    """Put an empty section where a plug-in has settings and the file has none, so that missing keys are named."""
    for name, model in (("metadata", MetadataSettings), ("remote", RemoteSettings)):
        section = tree.get(name)
        if schema.model_fields[name].annotation is not model and isinstance(section, dict):
            section.setdefault("plugin", {})


def as_declared(config: TierdConfig) -> TierdConfig:
    """Return the same values as instances of importable classes, which other processes can unpickle."""
    sections = {
        "metadata": _instance(MetadataSettings, config.metadata),
        "remote": _instance(RemoteSettings, config.remote),
    }
    return _instance(TierdConfig, config).model_copy(update=sections)


def _named(tree: Mapping[str, object], kind: BackendKind) -> str | None:
    section = tree.get(kind.section)
    name = section.get("backend") if isinstance(section, dict) else None
    return str(name) if isinstance(name, str) else None


def _with(plugged: Mapping[BackendKind, type[PluginSettings]]) -> type[TierdConfig]:
    metadata: type[MetadataSettings] = MetadataSettings
    remote: type[RemoteSettings] = RemoteSettings
    if settings := plugged.get(METADATA):
        metadata = create_model("MetadataSettings", __base__=metadata, plugin=(settings, _required()))
    if settings := plugged.get(OBJECT_STORE):
        remote = create_model("RemoteSettings", __base__=remote, plugin=(settings, _required()))
    return create_model(
        "TierdConfig",
        __base__=TierdConfig,
        metadata=(metadata, _required() if METADATA in plugged else Field(default_factory=metadata)),
        remote=(remote, _required()),
    )


def _required() -> object:
    return Field(description="settings of a backend of another package")


def _instance(model: type[_Section], section: _Section) -> _Section:
    values = {name: getattr(section, name) for name in model.model_fields}
    return model.model_construct(set(section.model_fields_set), **values)
