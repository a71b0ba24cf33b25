"""Where secrets come from: the file itself, a file beside it, or a systemd credential."""

import base64
import contextlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tierd.config.document import Document
from tierd.config.places import Location, dotted
from tierd.config.schema import TierdConfig
from tierd.config.traversal import Leaf, field_at, fields_of, is_secret, leaves, section_at

_CREDENTIAL = "credential:"
_MAX_BYTES = 64 * 1024
_STAND_INS = ("not read", base64.b64encode(bytes(32)).decode(), "http://not.read")  # text, a key, an address


def resolve_secrets(document: Document, env: Mapping[str, str]) -> None:
    """Replace every ``*_file`` and ``credential:NAME`` in the tree by the secret; what cannot be read becomes a fault.

    Blocking: reads small files.
    """
    for leaf in list(leaves(TierdConfig, document.tree)):
        if is_secret(leaf.field):
            _resolve_credential(document, leaf, env)
        elif _secret_of_file(leaf):
            _resolve_file(document, leaf)


def stand_in_for_secrets(document: Document) -> None:
    """Put a text in the place of every secret that the file mentions, for who needs none; nothing is read."""
    for leaf in list(leaves(TierdConfig, document.tree)):
        secret = leaf.key if is_secret(leaf.field) else _secret_of_file(leaf)
        if secret:
            leaf.holder[secret] = _stand_in_at((*leaf.location[:-1], secret))
    for location in [location for location in document.spoilt if _is_secret_at(location)]:
        del document.spoilt[location]
        _section_in(document, location)[str(location[-1])] = _stand_in_at(location)


def _stand_in_at(location: Location) -> str:
    """The first text that the field at ``location`` takes for a secret."""
    field = field_at(TierdConfig, location)
    assert field is not None, "secrets are fields"
    adapter: TypeAdapter[object] = TypeAdapter(field.rebuild_annotation())
    for text in _STAND_INS:
        with contextlib.suppress(ValidationError):
            adapter.validate_python(text)
            return text
    raise AssertionError(f"no stand-in for the secret {dotted(location)}")


def _is_secret_at(location: Location) -> bool:
    field = field_at(TierdConfig, location)
    return field is not None and is_secret(field)


def _section_in(document: Document, location: Location) -> dict[str, object]:
    holder: object = document.tree
    for part in location[:-1]:
        match holder, part:
            case dict(), str():
                holder = holder[part]
            case list(), int():
                holder = holder[part]
    assert isinstance(holder, dict), "what holds a spoilt value is a section"
    return holder


def _secret_of_file(leaf: Leaf) -> str | None:
    """The secret that a ``*_file`` key stands for; None for any other key."""
    secret, section = leaf.key.removesuffix("_file"), section_at(TierdConfig, leaf.location[:-1])
    field = fields_of(section).get(secret) if section and secret != leaf.key else None
    return secret if field and is_secret(field) else None


def _resolve_credential(document: Document, leaf: Leaf, env: Mapping[str, str]) -> None:
    value = leaf.holder[leaf.key]
    if not isinstance(value, str) or not value.startswith(_CREDENTIAL):
        return
    name, directory = value.removeprefix(_CREDENTIAL), env.get("CREDENTIALS_DIRECTORY")
    if not directory:
        problem = f"$CREDENTIALS_DIRECTORY is not set: run under systemd with LoadCredential={name}:/path"
        _leave_out(document, leaf, leaf.key, problem)
    elif "/" in name or not name.strip("."):
        _leave_out(document, leaf, leaf.key, f"{name!r} is no name of a credential")
    else:
        _put(document, leaf, leaf.key, Path(directory) / name)


def _resolve_file(document: Document, leaf: Leaf) -> None:
    secret, path = _secret_of_file(leaf), leaf.holder[leaf.key]
    assert secret is not None
    if secret in leaf.holder:
        document.fault(document.keys.get(leaf.location), f"{leaf.key} and {secret} are both set: remove one")
    elif isinstance(path, str) and Path(path).is_absolute():
        _put(document, leaf, secret, Path(path))


def _put(document: Document, leaf: Leaf, key: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        secret = content.decode().rstrip("\r\n")
    except OSError as error:
        _leave_out(document, leaf, key, f"cannot read the secret from {path}: {error.strerror}")
        return
    except UnicodeDecodeError:
        secret = ""
    if not secret or len(content) > _MAX_BYTES:
        _leave_out(document, leaf, key, f"{path} holds no secret: it must be text, not empty, at most 64KiB")
    else:
        leaf.holder[key] = secret


def _leave_out(document: Document, leaf: Leaf, secret: str, problem: str) -> None:
    document.spoil(leaf.location, problem)
    document.spoilt.setdefault((*leaf.location[:-1], secret), None)
    leaf.holder.pop(leaf.key, None)
