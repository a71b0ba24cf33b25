"""Protection of a Spark session: settings that keep it to its own processes, and faults that leave it open.

Spark without these settings answers every connection: its driver hands out the blocks of a session, keys and
credentials among them, and reads the Java objects that clients send. Pure: names and values of Spark's own settings.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

AUTHENTICATE: Final = "spark.authenticate"
SECRET: Final = "spark.authenticate.secret"
_ENCRYPTS_RPC: Final = "spark.network.crypto.enabled"
_FALLS_BACK: Final = "spark.network.crypto.saslFallback"
_TLS_RPC: Final = "spark.ssl.rpc.enabled"
_ENCRYPTS_FILES: Final = "spark.io.encryption.enabled"
_PAGES: Final = "spark.ui.enabled"

PROTECTION: Final[Mapping[str, str]] = MappingProxyType(
    {
        AUTHENTICATE: "true",
        _ENCRYPTS_RPC: "true",
        _FALLS_BACK: "false",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        _ENCRYPTS_FILES: "true",
        _PAGES: "false",
        "spark.ui.killEnabled": "false",
        "spark.redaction.regex": "(?i)secret|passw|passphrase|token|credential|(access|account|private|api)[._-]?key",
    }
)
"""Settings of a protected session. Version 2 derives keys by HKDF, GCM authenticates; neither is Spark's default."""

_ON_THIS_HOST: Final = re.compile(r"local(\[.*\])?")
_MAKES_SECRETS: Final = re.compile(r"local(\[.*\])?|yarn|k8s:.*")


def is_on_this_host(master: str) -> bool:
    """Return True if all of Spark runs in the driver's own process."""
    return _ON_THIS_HOST.fullmatch(master) is not None


def protection_faults(master: str, settings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the settings that leave a session open: name, and message with the remedy.

    Args:
        master: where Spark runs.
        settings: all that the session is given, by name. No message repeats a secret.
    """
    faults: list[tuple[str, str]] = []
    is_tls = _is_on(settings, _TLS_RPC)
    if not _is_on(settings, AUTHENTICATE):
        faults.append((AUTHENTICATE, "must be true: without it every user who reaches a port reads keys and data"))
    if not (is_tls or _is_on(settings, _ENCRYPTS_RPC)):
        faults.append((_ENCRYPTS_RPC, f"must be true, or {_TLS_RPC}: keys and data travel over these connections"))
    if not is_tls and settings.get(_FALLS_BACK, "true").strip().lower() != "false":
        faults.append((_FALLS_BACK, "must be false: else a connection may do without encryption"))
    if not _is_on(settings, _ENCRYPTS_FILES):
        faults.append((_ENCRYPTS_FILES, "must be true: keys and data lie in Spark's local files"))
    if _is_on(settings, _PAGES) and not is_on_this_host(master):
        faults.append((_PAGES, "must be false with a cluster: these pages listen on every address, without a login"))
    if not settings.get(SECRET) and _MAKES_SECRETS.fullmatch(master) is None:
        faults.append((SECRET, f"is missing: {master} has one secret for all, which its master and workers have too"))
    return faults


def _is_on(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "false").strip().lower() == "true"
