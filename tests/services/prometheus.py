"""Prometheus for tests: its targets and rules, and what it answers."""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.services import Services


@dataclass(frozen=True, slots=True)
class PrometheusService:
    """Running Prometheus, which scrapes and evaluates once a second. The job of its targets is named ``tierd``."""

    url: str
    services: Services

    def configure(self, *, rules: Mapping[str, str], targets: list[str]) -> None:
        """Replace all rules, by name of their file, and all targets, each as host:port."""
        folder = self._folder / "rules"
        folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            file.unlink()
        for name, text in rules.items():
            (folder / name).write_text(text)
        self.watch(targets)
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/-/reload", method="POST"), timeout=30).close()

    def watch(self, targets: list[str]) -> None:
        """Replace all targets within a second, each as host:port; a host:port is the label ``instance``."""
        new = self._folder / "targets.new"
        new.write_text(json.dumps([{"targets": targets}]))
        new.rename(self._folder / "targets.json")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query: each with ``metric``, its labels, and ``value``, time and text.

        Raises:
            HTTPError: the expression is not valid.
        """
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def alerts(self) -> list[dict[str, Any]]:
        """Return the pending and firing alerts: each with ``labels``, ``annotations``, ``state`` and ``value``."""
        found: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return found

    @property
    def _folder(self) -> Path:
        return self.services.root / "prometheus"

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        address = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=30) as reply:
            answer: dict[str, Any] = json.load(reply)["data"]
        return answer
