"""Small YAML files of their own, such as a price list, read as strictly as the configuration."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from tierd.config.document import Document, read_document
from tierd.config.faults import explain_all
from tierd.errors import ConfigError, ConfigFault

_MAX_BYTES = 64 * 1024
_Model = TypeVar("_Model", bound=BaseModel)


def load_side_file(path: Path, model: type[_Model]) -> _Model:
    """Read the file at ``path`` as ``model``. Blocking.

    Raises:
        ConfigError: it cannot be read, or anything in it is wrong; names every fault with its place.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES).decode()
    except OSError as error:
        raise ConfigError([ConfigFault(path, 0, 0, f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([ConfigFault(path, 0, 0, "is not UTF-8")]) from error
    document = read_document(text, {})
    if not document.faults:
        try:
            return model.model_validate(document.tree, context={"file": True})
        except ValidationError as error:
            _note(document, model, error)
    raise ConfigError(
        [
            ConfigFault(path, place.line if place else 0, place.column if place else 0, message)
            for place, message in document.faults
        ]
    )


def _note(document: Document, model: type[BaseModel], error: ValidationError) -> None:
    for location, message in explain_all(model, error, document.tree, document.spoilt):
        place = document.keys.get(location) if message.startswith("unknown key") else None
        document.fault(place or document.nearest_place(location), message)
