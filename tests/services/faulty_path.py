"""FaultyPath: a way through Toxiproxy to a real server, which a test can spoil."""

import json
import urllib.request
from typing import Literal
from uuid import uuid4

from tests.services.ports import free_port


class FaultyPath:
    """Proxied path to a server.

    Attributes:
        address: host and port that a client must be given.
        endpoint_url: the same for HTTP; S3 clients must be given it, for they sign the host.
    """

    def __init__(self, control_url: str, upstream: str) -> None:
        """Make a path to ``upstream``, an HTTP address or host:port."""
        self._control_url = control_url
        self.name = f"path-{uuid4().hex[:12]}"
        made = self._call(
            "POST",
            "/proxies",
            {
                "name": self.name,
                "listen": f"127.0.0.1:{free_port()}",
                "upstream": upstream.removeprefix("http://").partition("/")[0],
                "enabled": True,
            },
        )
        self.address = str(made["listen"])
        self.endpoint_url = f"http://{self.address}"

    def add(
        self,
        kind: str,
        stream: Literal["upstream", "downstream"] = "downstream",
        **attributes: int,
    ) -> None:
        """Add a toxic, for example ``add("limit_data", "downstream", bytes=30)``."""
        toxic = {"name": f"{kind}-{stream}", "type": kind, "stream": stream, "attributes": attributes}
        self._call("POST", f"/proxies/{self.name}/toxics", toxic)

    def remove(self, kind: str, stream: Literal["upstream", "downstream"] = "downstream") -> None:
        """Remove a toxic."""
        self._call("DELETE", f"/proxies/{self.name}/toxics/{kind}-{stream}")

    def disable(self) -> None:
        """Refuse connections and cut those that are open."""
        self._set_enabled(enabled=False)

    def enable(self) -> None:
        """Accept connections again, on the same port."""
        self._set_enabled(enabled=True)

    def delete(self) -> None:
        """Remove the path."""
        self._call("DELETE", f"/proxies/{self.name}")

    def _set_enabled(self, *, enabled: bool) -> None:
        self._call("POST", f"/proxies/{self.name}", {"listen": self.address, "enabled": enabled})

    def _call(self, method: str, path: str, body: object | None = None) -> dict[str, object]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._control_url + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=5) as reply:
            answer: dict[str, object] = json.loads(reply.read() or b"{}")
        return answer
