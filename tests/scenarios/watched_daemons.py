"""Daemons that a real Prometheus scrapes, with the shipped alerts and short times."""

from collections.abc import Sequence
from pathlib import Path

from tests.alerts.rule_files import ALERTS, RECORDING, shortened
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.prometheus import PrometheusService
from tests.services.waiting import wait_until

FIRING_DEADLINE_S = 60.0


class WatchedDaemons:
    """Maker of installations of tierd, which Prometheus scrapes from then on."""

    def __init__(self, root: Path, prometheus: PrometheusService, warm: WarmTierd) -> None:
        """Load the rules; Prometheus forgets its targets and former rules."""
        self._root = root
        self._prometheus = prometheus
        self._warm = warm
        self._targets: list[str] = []
        rules = {file.name: shortened(file.read_text()) for file in (ALERTS, RECORDING)}
        prometheus.configure(rules=rules, targets=[])

    def install(
        self, name: str, log_dirs: Sequence[Path], settings: Settings, *, remote: Settings | None = None
    ) -> Installation:
        """Return an installation with a folder of its own; ``settings`` and ``remote`` are as there."""
        made = Installation(self._root / name, log_dirs, remote=remote, settings=settings, warm=self._warm)
        self.watch(made)
        return made

    def watch(self, installation: Installation) -> None:
        """Have Prometheus scrape another installation."""
        self._targets.append(installation.http)
        self._prometheus.watch(self._targets)

    def firing(self, installation: Installation) -> dict[str, dict[str, str]]:
        """Return the labels of the alerts that an installation fires now, by name."""
        alerts = [alert for alert in self._prometheus.alerts() if alert["state"] == "firing"]
        return {
            alert["labels"]["alertname"]: alert["labels"]
            for alert in alerts
            if alert["labels"]["instance"] == installation.http
        }

    def require_firing(self, name: str, installation: Installation) -> dict[str, str]:
        """Wait until Prometheus fires the alert of an installation; return its labels."""
        wait_until(
            lambda: name in self.firing(installation),
            what=f"{name} to fire",
            deadline_s=FIRING_DEADLINE_S,
            last_seen=self._prometheus.alerts,
            interval_s=0.2,
        )
        return self.firing(installation)[name]

    def require_silent(self, name: str, installation: Installation) -> None:
        """Wait until Prometheus has scraped an installation, and does not fire this alert of it."""
        wait_until(
            lambda: self._has_scraped(installation) and name not in self.firing(installation),
            what=f"{name} to be silent",
            deadline_s=FIRING_DEADLINE_S,
            last_seen=self._prometheus.alerts,
            interval_s=0.2,
        )

    def _has_scraped(self, installation: Installation) -> bool:
        return bool(self._prometheus.query(f'tierd_build_info{{instance="{installation.http}"}}'))
