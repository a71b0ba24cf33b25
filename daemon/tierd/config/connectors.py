"""Backends of other packages: a connector is found by its name, imported, and checked before its first use.

The name is that of an entry point, or a dotted name such as ``acme_tierd.store:CONNECTOR``.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Protocol

from tierd.config.places import Location
from tierd.config.section import Settings

INTERFACE_VERSION: Final = 1
"""Version of the interface of a connector and its store; a change that breaks older connectors raises it."""

_DOTTED: Final = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*)[.:](?P<name>[^\W\d]\w*)")


class PluginSettings(Settings):
    """Settings of a backend of another package, which defines the keys (docs/backends.md)."""


class Connector(Protocol):
    """Attributes that every connector has; ``open`` and the rest differ by kind."""

    @property
    def interface_version(self) -> int:
        """Return the ``INTERFACE_VERSION`` that the connector was written for, as a number of its own."""

    @property
    def settings(self) -> type[PluginSettings]:
        """Return the schema of the section ``plugin``."""


@dataclass(frozen=True, slots=True)
class BackendKind:
    """A section of the file that names a backend.

    Attributes:
        section: ``<section>.backend`` has the name, ``<section>.plugin`` the settings.
        noun: word for the backend, for errors.
        group: of the entry points.
        built_in: names that no package can take.
        functions: names of the functions that a connector provides.
    """

    section: str
    noun: str
    group: str
    built_in: tuple[str, ...]
    functions: tuple[str, ...]


METADATA: Final = BackendKind(
    "metadata", "metadata backend", "tierd.metadata_backends", ("sqlite", "postgres", "redis"), ("open", "keys")
)
OBJECT_STORE: Final = BackendKind(
    "remote", "object store", "tierd.object_stores", ("filesystem", "s3", "gcs", "azure"), ("open",)
)


def plugin_faults(kind: BackendKind, backend: str, plugin: PluginSettings | None) -> list[tuple[Location, str]]:
    """Return the faults of a section ``plugin`` that does not go with its backend."""
    if backend in kind.built_in and plugin is not None:
        return [(("plugin",), f"backend {backend} is built in and has no section plugin: remove one of them")]
    if backend not in kind.built_in and plugin is None:
        return [(("backend",), f"backend {backend} needs the section {kind.section}.plugin")]
    return []


class ConnectorError(ValueError):
    """A backend that is not known, cannot be imported, or does not fit; the remedy is in the message."""


def find_connector(kind: BackendKind, name: str) -> Connector:
    """Import the connector that ``name`` names and check that it fits this tierd. Blocking.

    Raises:
        ConnectorError: no package has it, it cannot be imported, or it is written for another version of tierd.
    """
    if match := _DOTTED.fullmatch(name):
        connector: object = _imported(kind, EntryPoint(name, f"{match['module']}:{match['name']}", kind.group))
    else:
        connector = _imported(kind, _entry_point(kind, name))
    version = getattr(connector, "interface_version", None)
    if not isinstance(version, int):
        raise ConnectorError(f"{name} is no connector: it has no interface_version; see docs/backends.md")
    if version != INTERFACE_VERSION:
        raise ConnectorError(
            f"{name} is written for version {version} of tierd's interface for {kind.noun}s, this tierd has version "
            f"{INTERFACE_VERSION}: install a version of the package that fits"
        )
    return _complete(kind, name, connector)


def _entry_point(kind: BackendKind, name: str) -> EntryPoint:
    installed = entry_points(group=kind.group)
    found = [each for each in installed if each.name == name]
    if len({each.value for each in found}) > 1:
        values = " and ".join(sorted(each.value for each in found))
        raise ConnectorError(
            f"several packages provide the {kind.noun} {name!r}: write the one that is meant, {values}"
        )
    if found:
        return found[0]
    *others, last = kind.built_in
    known = [*kind.built_in, *sorted({each.name for each in installed})]
    near = get_close_matches(name, known, n=1)
    message = f"{name!r} is not {', '.join(others)} or {last}, and no installed package provides it"
    raise ConnectorError(message + (f": did you mean {near[0]}?" if near else ""))


def _imported(kind: BackendKind, entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except Exception as error:  # another package's module may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConnectorError(
            f"{entry_point.value} cannot be imported: {reason}; install the package of the {kind.noun} where tierd runs"
        ) from error


def _complete(kind: BackendKind, name: str, connector: object) -> Connector:
    settings = getattr(connector, "settings", None)
    if not (isinstance(settings, type) and issubclass(settings, PluginSettings)):
        raise ConnectorError(f"{name} is no connector: its settings are no class derived from PluginSettings")
    for function in kind.functions:
        if not callable(getattr(connector, function, None)):
            raise ConnectorError(f"{name} is no connector for {kind.noun}s: it has no function {function}")
    checked: Connector = connector  # type: ignore[assignment]  # judged above, attribute by attribute
    return checked
