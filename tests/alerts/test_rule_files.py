"""The shipped rules: promtool accepts them, each alert has a unit test, a section and metrics."""

import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.alerts.rule_files import ALERTS, RECORDING, ROOT, UNIT_TESTS, alerts, metrics_in, recorded, shortened
from tierd.telemetry.declaration import Kind
from tierd.telemetry.metrics import DECLARATIONS

OPERATIONS = ROOT / "docs" / "operations.md"
FILES = sorted(UNIT_TESTS.glob("*.yaml"))
_SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count"), Kind.SUMMARY: ("_sum", "_count")}


def run_unit_tests(promtool: str, files: list[Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, "test", "rules", *files], capture_output=True, text=True, check=False)


def test_promtool_accepts_the_rules(promtool: str) -> None:
    done = subprocess.run([promtool, "check", "rules", ALERTS, RECORDING], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


def test_unit_tests_of_the_rules_pass(promtool: str) -> None:
    done = run_unit_tests(promtool, FILES)

    assert done.returncode == 0, done.stdout + done.stderr


def test_unit_tests_miss_every_alert_that_is_gone(promtool: str, tmp_path: Path) -> None:
    without = []
    for file in FILES:
        unit_tests = YAML(typ="safe").load(file)
        unit_tests["rule_files"] = [str(RECORDING)]
        without.append(tmp_path / file.name)
        YAML(typ="safe").dump(unit_tests, without[-1])

    done = run_unit_tests(promtool, without)

    assert done.returncode == 1
    assert set(re.findall(r'exp: {alertname="(\w+)"', done.stdout + done.stderr)) == set(alerts())


@pytest.mark.parametrize("name", sorted(alerts()))
def test_alert_names_a_section_for_the_person_on_call(name: str) -> None:
    alert = alerts()[name]

    assert alert["annotations"]["runbook"] == f"docs/operations.md#{name.lower()}"
    assert len(section_of(name).split()) > 20, "a section says what it is and what to do"
    assert alert["annotations"]["summary"]
    assert alert["labels"]["severity"] in {"critical", "warning"}


def test_page_has_no_section_of_an_alert_that_is_gone() -> None:
    sections = re.findall(r"^### (Tierd\w+)$", OPERATIONS.read_text(), flags=re.MULTILINE)

    assert sorted(sections) == sorted(alerts())


def section_of(name: str) -> str:
    """Return the text below the heading of an alert."""
    text = OPERATIONS.read_text()
    assert text.count(f"\n### {name}\n") == 1, f"no section {name} in docs/operations.md"
    return text.partition(f"\n### {name}\n")[2].partition("\n#")[0]


def test_rules_use_declared_metrics_only() -> None:
    declared = {f"{each.name}{suffix}" for each in DECLARATIONS for suffix in ("", *_SUFFIXES.get(each.kind, ()))}
    known = declared | set(recorded()) | {"process_open_fds", "process_max_fds"}
    expressions = [*(alert["expr"] for alert in alerts().values()), *recorded().values()]

    used = set().union(*map(metrics_in, expressions))

    assert used <= known, used - known
    assert len(used) > len(alerts()) / 2


def test_shortened_rules_differ_in_times_only(promtool: str, tmp_path: Path) -> None:
    short = shortened(ALERTS.read_text())
    (tmp_path / "short.yaml").write_text(short)

    done = subprocess.run([promtool, "check", "rules", tmp_path / "short.yaml"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert words_without_times(short) == words_without_times(ALERTS.read_text())
    rules = short.partition("\ngroups:\n")[2]
    assert not re.findall(r"\[\d+[mhd]\]|for: \d+[mhd]|offset \d+[mhd]|\* (?:60|3600|86400)", rules)


def words_without_times(rules: str) -> list[str]:
    """Return the words of rules without numbers and units of time."""
    plain = re.sub(r"\[\d+[smhd]\]|\b\d+[smhd]\b|> \d+( \* \d+)?", "TIME", rules)
    return [word for word in plain.split() if not word.startswith("#")]


def test_every_alert_is_fired_by_a_real_daemon() -> None:
    files = (ROOT / "tests" / "scenarios").glob("test_*_alerts.py")
    fired = set(re.findall(r'require_firing\(\s*"(\w+)"', "".join(file.read_text() for file in files)))

    assert fired == set(alerts())
