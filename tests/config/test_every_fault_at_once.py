"""Faults of one file do not hide each other: single values, rules between keys, list entries, secrets."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import model_validator

from tests.config.test_loading import MINIMAL, faults
from tierd.config import TierdConfig, TopicDefaults, load_config, load_side_file
from tierd.config.places import Location, PlacedFaultsError, dotted
from tierd.config.section import Settings
from tierd.config.traversal import all_locations, field_at, is_secret, is_written, secret_of_file, unit_of
from tierd.config.values import Text, Unit, WholeNumber
from tierd.errors import ConfigError

Mutation = tuple[tuple[str, ...], object]
"""Keys down to a value, and what stands there instead; each makes one fault, or several, by itself."""

MUTATIONS: dict[str, Mutation] = {
    "number": (("copy", "concurrency"), 0),
    "duration": (("shutdown_timeout",), 15),
    "unknown key": (("http", "port"), 80),
    "list entry": (("topics", "exclude"), ["("]),
    "path of the job": (("pipeline", "local_dir"), "/var/lib/kafka/data/job"),
    "path of holds": (("hold", "dir"), "/var/lib/kafka/data/hold"),
    "path of metadata": (("metadata", "sqlite"), {"path": "/var/lib/kafka/data/m.db"}),
    "cron": (("pipeline", "schedule"), "daily"),
    "time zone": (("pipeline", "time_zone"), "Mars/Olympus"),
    "windows": (("pipeline", "pause_windows"), ["8-9", "08:00-18:00", "x"]),
    "login": (
        ("leadership",),
        {"kafka": {"bootstrap_servers": ["a:1"], "security_protocol": "sasl_ssl", "cert_file": "/c"}},
    ),
    "store": (("remote",), {"backend": "s3", "key_prefix": "a//b"}),
    "ring": (("remote", "encryption"), {"enabled": True, "active_key": "b", "keys": [{"id": "a"}]}),
    "lag": (
        ("topics", "overrides"),
        [{"match": "a", "local_retention": "1h", "copy_lag": "2h"}, {"match": "b", "local_retention": 7}],
    ),
    "secret": (("metadata", "redis"), {"url": {"password": "hunter2"}}),
    "no value": (("cluster_id",), "${NOT_SET}"),
    "left to brokers": (("topics", "defaults"), {"retention": "from-broker"}),
    "endpoint": (
        ("kafka",),
        {
            "listeners": ["PLAINTEXT://192.0.2.1:9192", {"listen": "localhost:9193", "protocol": "ssl"}],
            "quarantine": {"listeners": ["RESTORED"]},
            "idle_timeout": 5,
        },
    ),
    "metadata store": (("metadata", "backend"), "postgres"),
}
EXCLUDE_EACH_OTHER = [{"store", "ring"}, {"login", "left to brokers"}]
"""Mutations of the same key, and a connection to Kafka beside what needs one."""


def mutated(names: frozenset[str]) -> dict[str, object]:
    """Return the smallest configuration with these mutations."""
    tree: dict[str, object] = {
        "log_dirs": [{"path": "/var/lib/kafka/data"}],
        "remote": {"backend": "filesystem", "filesystem": {"path": "/mnt/tier"}},
    }
    for name in sorted(names):
        keys, value = MUTATIONS[name]
        holder = tree
        for key in keys[:-1]:
            inner = holder.setdefault(key, {})
            assert isinstance(inner, dict)
            holder = inner
        holder[keys[-1]] = value
    return tree


def messages(tmp_path: Path, names: frozenset[str]) -> set[str]:
    path = tmp_path / "tierd.yaml"
    path.write_text(yaml_text(mutated(names)))
    try:
        load_config(path, {})
    except ConfigError as error:
        return {fault.message for fault in error.faults}
    return set()


def yaml_text(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {yaml_text(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(yaml_text, value)) + "]"
        case str():
            return f'"{value}"'
        case _:
            return str(value).lower()


_SETS = st.sets(st.sampled_from(sorted(MUTATIONS)), max_size=6).map(frozenset)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(names=_SETS.filter(lambda names: not any(pair <= names for pair in EXCLUDE_EACH_OTHER)))
def test_faults_of_a_file_are_the_union_of_the_faults_of_its_parts(tmp_path: Path, names: frozenset[str]) -> None:
    alone = [messages(tmp_path, frozenset({name})) for name in names]

    assert all(alone)
    assert messages(tmp_path, names) == set().union(*alone)


def test_path_of_the_job_in_a_log_dir_is_a_fault_beside_another_fault(tmp_path: Path) -> None:
    lines = "pipeline: {local_dir: /var/lib/kafka/data/job}\ncopy: {concurrency: 0}\n"

    assert [fault.split(": ")[1] for fault in faults(tmp_path, MINIMAL + lines)] == [
        "pipeline.local_dir",
        "copy.concurrency",
    ]


def unit_at(location: Location) -> Unit | None:
    field = field_at(TierdConfig, location)
    return unit_of(field) if field else None


def written_at(location: Location) -> bool:
    field = field_at(TierdConfig, location)
    return field is not None and is_written(field)


READ_ONLY_PATHS = {
    "control.mqtt.tls.ca_file",
    "control.mqtt.tls.certificate_file",
    "control.mqtt.tls.key_file",
    "push.tls.ca_file",
    "push.tls.certificate_file",
    "push.tls.key_file",
    "cost.price_file",
    "log_dirs.path",  # ``owner`` decides: paths of the broker or of tierd
    "pipeline.java_home",
    "kafka.tls.certificate_file",
    "kafka.tls.client_ca_file",
    "kafka.tls.key_file",
    "leadership.kafka.ca_file",
    "leadership.kafka.cert_file",
    "leadership.kafka.key_file",
    "remote.gcs.credentials_file",
    "remote.s3.ca_file",
}


def test_every_path_of_the_schema_is_written_or_listed_as_read_only() -> None:
    paths = [location for location in all_locations(TierdConfig) if unit_at(location) is Unit.PATH]
    read = {dotted(location) for location in paths if not written_at(location)}

    assert read - {dotted(location) for location in paths if secret_of_file(TierdConfig, location)} == READ_ONLY_PATHS


@pytest.mark.parametrize("location", [each for each in all_locations(TierdConfig) if written_at(each)], ids=dotted)
def test_every_path_that_tierd_writes_is_refused_in_a_log_dir(tmp_path: Path, location: Location) -> None:
    tree = mutated(frozenset())
    if location[0] == "push":
        tree["push"] = {"listen": "localhost:9406"}  # the section is off without it
    holder = tree
    for key in location[:-1]:
        inner = holder.setdefault(str(key), {})
        assert isinstance(inner, dict)
        holder = inner
    holder[str(location[-1])] = "/var/lib/kafka/data/x"

    (found,) = faults(tmp_path, yaml_text(tree))

    assert f"{dotted(location)}: /var/lib/kafka/data/x is inside the log dir" in found


class Prices(Settings):
    """Side file with a rule between its keys."""

    low: WholeNumber = 0
    high: WholeNumber = 0
    currency: Text = "USD"

    @model_validator(mode="after")
    def _range_is_one(self) -> "Prices":
        if self.low > self.high:
            raise PlacedFaultsError([(("low",), "low is above high")])
        return self


@pytest.mark.parametrize(("currency", "faulty"), [("EUR", ["low"]), ("3", ["low", "currency"])])
def test_rules_of_a_side_file_are_checked_beside_a_wrong_value(
    tmp_path: Path, currency: str, faulty: list[str]
) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(f"low: 3\nhigh: 2\ncurrency: {currency}\n")

    with pytest.raises(ConfigError) as caught:
        load_side_file(path, Prices)

    assert sorted(fault.message.split(":")[0] for fault in caught.value.faults) == sorted(faulty)


class TestListEntries:
    """Faults of list entries: one fault for a bad entry, with a valid form."""

    @pytest.mark.parametrize("entry", ["/a/b", "3", "[/x]", "null"])
    def test_entry_that_is_no_section_is_one_fault_with_a_valid_entry(self, tmp_path: Path, entry: str) -> None:
        text = MINIMAL.replace("{path: /var/lib/kafka/data}", entry)

        assert faults(tmp_path, text) == [
            "tierd.yaml:1:12: log_dirs[0]: must be a section with keys such as path: write - path: /var/lib/kafka/data"
        ]

    def test_only_entry_with_a_bad_value_is_one_fault(self, tmp_path: Path) -> None:
        assert faults(tmp_path, MINIMAL.replace("{path: /var/lib/kafka/data}", "{path: 3}")) == [
            "tierd.yaml:1:19: log_dirs[0].path: 3 is no path"
        ]

    @pytest.mark.parametrize(
        ("server", "shown"), [("3", "3"), ("localhost", "'localhost'"), ("{host: a}", "a mapping"), ("'a:0'", "'a:0'")]
    )
    def test_malformed_bootstrap_server_is_one_fault_with_an_example_address(
        self, tmp_path: Path, server: str, shown: str
    ) -> None:
        (found,) = faults(tmp_path, MINIMAL + f"leadership: {{kafka: {{bootstrap_servers: [{server}]}}}}\n")

        assert found == (
            f"tierd.yaml:5:42: leadership.kafka.bootstrap_servers[0]: {shown} is no address of a broker: "
            "write host:port, such as kafka-1.example.com:9092"
        )

    def test_value_in_the_place_of_a_list_is_a_fault_with_an_example_list(self, tmp_path: Path) -> None:
        lines = "leadership: {kafka: {bootstrap_servers: 'a:1'}}\n"
        text = MINIMAL.replace("[{path: /var/lib/kafka/data}]", "/x")

        assert faults(tmp_path, text + lines) == [
            "tierd.yaml:1:11: log_dirs: must be a list, such as [{path: /var/lib/kafka/data}]",
            'tierd.yaml:5:41: leadership.kafka.bootstrap_servers: must be a list, such as ["127.0.0.1:9092"]',
        ]


class TestFromBroker:
    """Value ``from-broker``, which needs a connection to Kafka."""

    @pytest.mark.parametrize(
        "key", ["retention", "retention_bytes", "local_retention", "local_retention_bytes", "segment_bytes"]
    )
    @pytest.mark.parametrize("place", ["defaults: {%s: from-broker}", "overrides: [{match: a, %s: from-broker}]"])
    def test_setting_left_to_brokers_without_a_connection_is_a_fault(
        self, tmp_path: Path, key: str, place: str
    ) -> None:
        topics = f"topics: {{{place % key}}}\n"
        (found,) = faults(tmp_path, MINIMAL + topics)

        assert f".{key}: from-broker needs the section leadership.kafka" in found
        connected = MINIMAL + topics + "leadership: {kafka: {bootstrap_servers: ['a:1']}}\n"
        (tmp_path / "tierd.yaml").write_text(connected)
        assert load_config(tmp_path / "tierd.yaml", {}).leadership.kafka

    def test_cleanup_policy_left_to_brokers_without_a_connection_is_delete(self, tmp_path: Path) -> None:
        (tmp_path / "tierd.yaml").write_text(MINIMAL + "topics: {defaults: {cleanup_policy: from-broker}}\n")

        assert load_config(tmp_path / "tierd.yaml", {}).topics.defaults == TopicDefaults()

    def test_connection_with_a_fault_counts_as_a_connection(self, tmp_path: Path) -> None:
        lines = "topics: {defaults: {retention: from-broker}}\nleadership: {kafka: {bootstrap_servers: [3]}}\n"

        (found,) = faults(tmp_path, MINIMAL + lines)

        assert "bootstrap_servers[0]" in found


SECRETS = [each for each in all_locations(TierdConfig) if (field := field_at(TierdConfig, each)) and is_secret(field)]
NEEDLE = "hunter2hunter2"


class TestSecrets:
    """Values in the place of a secret, in any shape: no fault repeats them."""

    @pytest.mark.parametrize(
        "written",
        [
            f"{{password: {NEEDLE}}}",
            f"{{{NEEDLE}: 1, {NEEDLE}: 2}}",
            f"{{{{{NEEDLE}}}}}",
            f"[{NEEDLE}]",
            f"!!int {NEEDLE}",
            f"!!float {NEEDLE}",
        ],
    )
    @pytest.mark.parametrize("location", SECRETS, ids=dotted)
    def test_value_of_another_shape_in_the_place_of_a_secret_is_not_repeated(
        self, tmp_path: Path, location: Location, written: str
    ) -> None:
        found = faults(tmp_path, file_with(location, written))

        assert any(dotted(keyed(location)) in fault for fault in found)
        assert not any(NEEDLE in fault for fault in found)

    @pytest.mark.parametrize(
        "written", [f"{{password: {NEEDLE}}}", NEEDLE, f"[{NEEDLE}]", f"postgres://u:{NEEDLE}@h/d"]
    )
    @pytest.mark.parametrize("location", [each for each in SECRETS if each[-1] != "proxy_url"], ids=dotted)
    def test_secret_in_the_place_of_its_file_is_not_repeated(
        self, tmp_path: Path, location: Location, written: str
    ) -> None:
        beside = (*location[:-1], f"{location[-1]}_file")
        if field_at(TierdConfig, beside) is None:
            pytest.fail(f"{dotted(location)} has no key for a file")
        found = faults(tmp_path, file_with(beside, written))

        assert any(dotted(keyed(beside)) in fault for fault in found)
        assert not any(NEEDLE in fault for fault in found)

    @pytest.mark.parametrize(
        "line",
        [
            f"metadata: {{backend: {{postgres: {{dsn: {NEEDLE}}}}}}}",
            f"cluster_id: {{secret: {NEEDLE}}}",
            f"state_dir: {{secret: {NEEDLE}}}",
            f"node_id: {{secret: {NEEDLE}}}",
            f"topics: {{include: [{{secret: {NEEDLE}}}], defaults: {{copy: {{secret: {NEEDLE}}}}}}}",
            f"http: {{listen: {{secret: {NEEDLE}}}}}",
            f"hold: {{max_bytes: [{{secret: {NEEDLE}}}]}}",
        ],
    )
    def test_mapping_in_the_wrong_place_is_named_and_not_repeated(self, tmp_path: Path, line: str) -> None:
        assert not any(NEEDLE in fault for fault in faults(tmp_path, MINIMAL + line + "\n"))


LISTS = {("remote", "encryption", "keys"), ("kafka", "sasl", "users")}


def keyed(location: Location) -> Location:
    """Return the location as the file of ``file_with`` has it: keys of a ring, and users, are in a list."""
    return (*location[:-1], 0, location[-1]) if location[:-1] in LISTS else location


def file_with(location: Location, written: str) -> str:
    section = f"{{{location[-1]}: {written}}}"
    if location[:-1] in LISTS:
        section = f"[{section}]"
    for key in reversed(location[1:-1]):
        section = f"{{{key}: {section}}}"
    remote = "remote: {backend: filesystem, filesystem: {path: /mnt/tier}}"
    if location[0] == "remote":
        remote = f"remote: {section}"
        return f"log_dirs: [{{path: /k}}]\n{remote}\n"
    return f"log_dirs: [{{path: /k}}]\n{remote}\n{location[0]}: {section}\n"
