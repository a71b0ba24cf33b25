"""A part of the file for commands that need no more: the same values, the same faults, and other sections unread."""

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from tierd.config import HostSettings, PricedTierSettings, TieredLogSettings, load_config, load_part
from tierd.config.schema import TierdConfig
from tierd.config.section import Settings
from tierd.config.sections.cost_settings import CostSettings
from tierd.errors import ConfigError

WHOLE = """
cluster_id: ${CLUSTER:-c1}
state_dir: ./state
log_dirs: [{path: /srv/kafka}, {path: /srv/more, owner: tierd}]
metadata: {backend: postgres, timeout: 7s, postgres: {dsn_file: ./dsn, pool_size: 2}}
remote: {backend: filesystem, filesystem: {path: ../store}}
cost: {price_file: ./prices.yaml}
copy: {interval: 3s}
hold: {dir: ./held}
fetch: {timestamp_timeout: 5s}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "dsn").write_text("postgresql://tierd:geheim@db/tierd\n")
    path = tmp_path / "tierd.yaml"
    path.write_text(WHOLE)
    return path


def faults_of(file: Path, part: type[Settings]) -> str:
    with pytest.raises(ConfigError) as found:
        load_part(file, os.environ, part)
    return str(found.value)


@pytest.mark.parametrize("part", [HostSettings, PricedTierSettings, TieredLogSettings])
def test_part_has_the_keys_of_the_whole_file_with_their_types_and_defaults(part: type[Settings]) -> None:
    for name, field in part.model_fields.items():
        whole = TierdConfig.model_fields[name]
        assert (field.annotation, field.metadata, field.alias) == (whole.annotation, whole.metadata, whole.alias)
        assert field.get_default(call_default_factory=True) == whole.get_default(call_default_factory=True)


@pytest.mark.parametrize("secrets", [True, False])
def test_part_has_the_values_of_the_whole_file(file: Path, *, secrets: bool) -> None:
    whole = load_config(file, {"CLUSTER": "c2"}, secrets=secrets)

    host = load_part(file, {"CLUSTER": "c2"}, HostSettings, secrets=secrets)
    priced = load_part(file, {"CLUSTER": "c2"}, PricedTierSettings, secrets=secrets)
    logs = load_part(file, {"CLUSTER": "c2"}, TieredLogSettings, secrets=secrets)

    assert host.model_dump() == whole.model_dump(include=set(HostSettings.model_fields))
    assert priced.model_dump() == whole.model_dump(include=set(PricedTierSettings.model_fields))
    assert logs.model_dump() == whole.model_dump(include=set(TieredLogSettings.model_fields))
    assert logs.hold_dir == whole.hold_dir == file.parent / "held"
    assert host.cluster_id == "c2"
    assert priced.cost == CostSettings(price_file=file.parent / "prices.yaml")
    assert host.metadata.postgres is not None
    assert host.metadata.postgres.dsn == SecretStr("postgresql://tierd:geheim@db/tierd" if secrets else "not read")


def test_fault_in_another_section_is_left_to_check_config(file: Path) -> None:
    file.write_text(WHOLE + "copyy: 1\nexpire: {grace: soon}\n")

    assert load_part(file, os.environ, HostSettings).state_dir == file.parent / "state"
    with pytest.raises(ConfigError):
        load_config(file, os.environ)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("node_id: -1", "node_id"),
        ("node_id: one", "node_id"),
        ("log_dirs: [{path: /srv/kafka}, {path: /srv/kafka/more}]", "are nested"),
        ("log_dirs: []", "log_dirs"),
        ("log_dirs: [{path: /srv/kafka, ownr: tierd}]", "unknown key"),
        ("state_dir: /srv/kafka/state", "is inside the log dir"),
        ("metadata: {backend: postgres}", "needs the section metadata.postgres"),
        ("metadata: {timeout: 0s}", "timeout"),
        ("metadata: {sqlite: {path: relative}}", "is not absolute"),
        ("metadata: {backend: postgres, postgres: {dsn_file: /absent}}", "cannot read the secret"),
        ("metadata: {backend: '${UNSET}'}", "is not set in the environment"),
        ("metadata: {backend: of.nobody:CONNECTOR}", "metadata.backend"),
    ],
)
def test_wrong_value_in_the_part_is_a_fault_among_every_other_fault(file: Path, line: str, fault: str) -> None:
    key = line.split(":", maxsplit=1)[0]
    rest = [each for each in WHOLE.splitlines() if not each.startswith(f"{key}:")]
    file.write_text("\n".join([*rest, line, "copyy: 1", ""]))

    said = faults_of(file, HostSettings)

    assert fault in said
    assert "copyy" in said


def test_missing_key_of_the_part_is_a_fault(file: Path) -> None:
    file.write_text("state_dir: /srv/tierd\n")

    assert "log_dirs" in faults_of(file, HostSettings)
    assert "remote" in faults_of(file, PricedTierSettings)


@pytest.mark.parametrize("text", ["", "[", "- a list", "state_dir: a\nstate_dir: b\n"])
def test_file_that_is_no_configuration_is_refused_as_by_the_whole(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as whole:
        load_config(file, os.environ)

    assert faults_of(file, HostSettings) == str(whole.value)


def test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert "cannot be read" in faults_of(tmp_path / "absent.yaml", HostSettings)
