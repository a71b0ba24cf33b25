"""The file of the dashboard: Grafana can place and tell its panels apart, and its queries name metrics that exist."""

import re

from tests.alerts.dashboard import dashboard, panels, queries
from tests.alerts.rule_files import alerts, metrics_in, recorded
from tierd.telemetry.declaration import Kind
from tierd.telemetry.metrics import DECLARATIONS


def test_panels_have_ids_titles_and_places_of_their_own() -> None:
    every = dashboard()["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in every)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in every}) == len({panel["title"] for panel in every}) == len(every)
    assert len(set(cells)) == len(cells), "no panel lies on another"
    assert max(x for x, _ in cells) < 24, "Grafana has 24 columns"


def test_panels_ask_the_chosen_data_source_for_the_chosen_daemons() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}

    assert {variable["name"] for variable in dashboard()["templating"]["list"]} == {"datasource", "instance"}
    assert all(panel["datasource"] == source for panel in panels())
    assert all(target["datasource"] == source for panel in panels() for target in panel["targets"])
    for panel in panels():
        for target in panel["targets"]:
            selectors = re.findall(r"\{([^}]*)\}", target["expr"])
            assert selectors, target["expr"]
            assert all(each.startswith('job="tierd", instance=~"$instance"') for each in selectors), target["expr"]
    assert all("$" not in expression for _, expression in queries())


def test_queries_use_metrics_that_exist_and_descriptions_name_alerts_that_exist() -> None:
    suffixes = {Kind.HISTOGRAM: ("_bucket",), Kind.SUMMARY: ("_sum", "_count")}
    declared = {f"{each.name}{suffix}" for each in DECLARATIONS for suffix in ("", *suffixes.get(each.kind, ()))}
    used = set().union(*(metrics_in(expression) for _, expression in queries()))
    named = {name for panel in panels() for name in re.findall(r"\bTierd\w+", panel["description"])}

    unknown = {name for name in used if not name.startswith("process_")} - declared - set(recorded())
    assert not unknown
    assert len(used) > len(panels()) * 3 / 4
    assert named
    assert named <= set(alerts())
