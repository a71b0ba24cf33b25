"""Settings of drills: off by default, checked at the door, and never in a log dir."""

from pathlib import Path

import pytest

from tierd.config import DrillSettings, load_config
from tierd.errors import ConfigError

BASE = """
log_dirs: [{path: /var/lib/kafka/data}]
remote: {backend: filesystem, filesystem: {path: /srv/tier}}
"""


def faults(folder: Path, drill: str) -> list[str]:
    file = folder / "tierd.yaml"
    file.write_text(f"{BASE}drill: {drill}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    return [str(fault).partition(": ")[2] for fault in caught.value.faults]


def test_drills_are_off_by_default() -> None:
    settings = DrillSettings()
    assert settings.timetable() is None
    assert settings.command == ()


def test_scratch_lies_in_the_state_directory_unless_it_is_configured(tmp_path: Path) -> None:
    file = tmp_path / "tierd.yaml"
    file.write_text(f"{BASE}state_dir: /srv/state\n")
    assert load_config(file, {}).drill_dir == Path("/srv/state/drill")
    file.write_text(f"{BASE}drill: {{scratch_dir: /srv/scratch}}\n")
    assert load_config(file, {}).drill_dir == Path("/srv/scratch")


@pytest.mark.parametrize(
    ("drill", "message"),
    [
        pytest.param('{schedule: "at night"}', "'at night' has not the five fields of cron", id="schedule"),
        pytest.param("{time_zone: Mars}", "'Mars' is no time zone", id="time zone"),
        pytest.param("{command: [drill.sh]}", "'drill.sh' is not absolute: write the whole path", id="command"),
        pytest.param("{scratch_dir: /var/lib/kafka/data/drill}", "is inside the log dir", id="scratch"),
        pytest.param("{partitions: 0}", "partitions", id="partitions"),
        pytest.param("{max_bytes: 0}", "max_bytes", id="bytes"),
    ],
)
def test_faulty_setting_is_named(tmp_path: Path, drill: str, message: str) -> None:
    (found,) = faults(tmp_path, drill)
    assert message in found
