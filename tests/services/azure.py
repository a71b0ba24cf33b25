"""Azure emulator for tests: its address, and containers."""

import base64
import hashlib
import hmac
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from tests.services.services import Services

_VERSION = "2021-12-02"


@dataclass(frozen=True, slots=True)
class AzureService:
    """Running emulator. ``services`` can kill, freeze and restart it under the name ``azure``."""

    endpoint_url: str
    account: str
    account_key: str
    services: Services

    def create_container(self) -> str:
        """Make an empty container with a fresh name."""
        container = f"tierd-{uuid4().hex}"
        url = f"{self.endpoint_url}/{container}?restype=container&{self.account_sas()}"
        request = urllib.request.Request(url, data=b"", method="PUT", headers={"x-ms-version": _VERSION})
        urllib.request.urlopen(request, timeout=10).close()
        return container

    def account_sas(self, *, permissions: str = "rwdlac") -> str:
        """Return a shared access signature for every container, valid for an hour."""
        expiry = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields = {"sp": permissions, "ss": "b", "srt": "sco", "st": "", "se": expiry, "sip": "", "spr": "https,http"}
        signed = "\n".join([self.account, *fields.values(), _VERSION, "", ""])
        digest = hmac.digest(base64.b64decode(self.account_key), signed.encode(), hashlib.sha256)
        given = {name: value for name, value in fields.items() if value}
        return urlencode(given | {"sv": _VERSION, "sig": base64.b64encode(digest).decode()})

    @property
    def host(self) -> str:
        """Return host and port, without the path of the account."""
        parts = urlsplit(self.endpoint_url)
        return f"{parts.scheme}://{parts.netloc}"
