"""Signatures for the requests that the client library cannot make (Azure: Create a service SAS). Pure."""

import base64
import binascii
import hashlib
import hmac
from datetime import datetime, timedelta
from urllib.parse import urlencode

_VERSION = "2021-12-02"
_SKEW = timedelta(minutes=15)  # between the store's clock and ours


def container_sas(*, account: str, account_key: str, container: str, now: datetime, lifetime: timedelta) -> str:
    """Return a query string that allows to write and delete the blobs of one container, and nothing else.

    Raises:
        ValueError: the key is not base64; the message does not show it.
    """
    try:
        key = base64.b64decode(account_key, validate=True)
    except binascii.Error:
        raise ValueError("remote.azure.account_key is not base64") from None
    fields = {
        "sp": "cwd",  # create, write, delete
        "st": f"{now - _SKEW:%Y-%m-%dT%H:%M:%SZ}",
        "se": f"{now + lifetime:%Y-%m-%dT%H:%M:%SZ}",
    }
    resource = f"/blob/{account}/{container}"
    # After the resource: identifier, addresses, protocols; version, kind, snapshot, scope; five headers of the answer.
    signed = [*fields.values(), resource, "", "", "", _VERSION, "c", "", "", *[""] * 5]
    digest = hmac.digest(key, "\n".join(signed).encode(), hashlib.sha256)
    return urlencode(fields | {"sv": _VERSION, "sr": "c", "sig": base64.b64encode(digest).decode()})
