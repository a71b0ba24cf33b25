"""The dashboard for Grafana that the project ships: its panels, and its queries as Grafana asks them."""

import json
from typing import Any, Final

from tests.alerts.rule_files import ROOT, WINDOW_S

DASHBOARD: Final = ROOT / "config" / "grafana" / "tierd.json"
_VARIABLES: Final = {"$instance": ".*", "$__rate_interval": f"{WINDOW_S}s", "$__range": f"{WINDOW_S}s"}


def dashboard() -> dict[str, Any]:
    """Return the whole dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    """Return the panels that have queries, without the headings of rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """Return the queries of all panels, each with the title of its panel; variables stand for all daemons."""
    found = []
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in _VARIABLES.items():
                expression = expression.replace(variable, value)
            found.append((panel["title"], expression))
    return found
