import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tierd.config import TierdConfig, load_config, load_state_dir
from tierd.errors import ConfigError

MINIMAL = """\
log_dirs: [{path: /var/lib/kafka/data}]
remote:
  backend: filesystem
  filesystem: {path: /mnt/tier}
"""
S3 = """\
log_dirs: [{path: /var/lib/kafka/data}]
remote:
  backend: s3
  s3:
    bucket: tierd
"""


def load(tmp_path: Path, text: str, **env: str) -> TierdConfig:
    path = tmp_path / "tierd.yaml"
    path.write_text(text)
    return load_config(path, env)


def faults(tmp_path: Path, text: str, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **env)
    return [str(fault).removeprefix(f"{tmp_path}/") for fault in caught.value.faults]


def test_file_with_only_the_required_keys_is_loaded(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)

    assert config.copying.interval_s == 30
    assert config.hold_dir == Path("/var/lib/tierd/hold")
    assert config.sqlite_path == Path("/var/lib/tierd/metadata.db")


def test_values_are_read_in_the_units_of_the_file(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        MINIMAL + "copy: {interval: 1m30s, max_bytes_per_second: 50MB, attempt_timeout: 1h}\n"
        "hold: {max_bytes: -1}\nfetch: {prefetch: 0B}\nhttp: {listen: '[::1]:80'}\n",
    )

    assert config.copying.interval_s == 90
    assert config.copying.max_bytes_per_second == 50_000_000
    assert config.hold.max_bytes is None
    assert config.fetch.prefetch_bytes == 0
    assert (config.http.host, config.http.port) == ("::1", 80)


def test_every_fault_is_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
state_dir: var/tierd
log_dirs:
  - path: /kafka/a
    owner: nobody
  - path: /kafka/a/b
topics:
  include: ["("]
remote:
  backend: s3
  key_prefix: a//b
  s3:
    bucket: ${BUCKET}
    part_size: 6000000
    endpoint: http://x
copy: {intervall: 3s, concurrency: 0, attempt_timeout: 15}
hold: {dir: /kafka/a/hold}
copy: {}
"""
    assert faults(tmp_path, text) == [
        "tierd.yaml:1:12: state_dir: var/tierd is not absolute: begin it with /, or with ./ if it is beside this file",
        "tierd.yaml:4:12: log_dirs[0].owner: 'nobody' is not kafka or tierd",
        "tierd.yaml:5:11: log_dirs[1].path: /kafka/a/b and /kafka/a are nested: list directories of partitions only",
        (
            "tierd.yaml:7:13: topics.include[0]: '(' is no regular expression: "
            "missing ), unterminated subpattern at position 0"
        ),
        (
            "tierd.yaml:10:15: remote.key_prefix: 'a//b' is no prefix: "
            "write it as prod/tier, no slash first, last or twice, no . or .."
        ),
        (
            "tierd.yaml:12:13: remote.s3.bucket: ${BUCKET} is not set in the environment: "
            "set it, or write ${BUCKET:-default}"
        ),
        (
            "tierd.yaml:13:16: remote.s3.part_size: 6000000 bytes are not a multiple of 1MiB, "
            "the block that checksums are taken over"
        ),
        "tierd.yaml:14:5: unknown key remote.s3.endpoint: did you mean remote.s3.endpoint_url?",
        "tierd.yaml:15:8: unknown key copy.intervall: did you mean copy.interval?",
        "tierd.yaml:15:36: copy.concurrency: must be at least 1",
        (
            "tierd.yaml:15:56: copy.attempt_timeout: 15 is no duration: "
            "write a number and a unit, such as 500ms, 30s, 15m, 1h30m or 7d"
        ),
        (
            "tierd.yaml:16:13: hold.dir: /kafka/a/hold is inside the log dir /kafka/a, where tierd writes nothing: "
            "choose a directory beside it"
        ),
        "tierd.yaml:17:1: copy is set twice, first in line 15: remove one",
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("copy: 3", "5:7: copy: must be a section with keys such as interval"),
        ("copy: {interval: -1}", "5:18: copy.interval: must be more than 0"),
        ("copy: {concurrency: true}", "5:21: copy.concurrency: True is no whole number"),
        ("copy: {concurrency: 1.5}", "5:21: copy.concurrency: 1.5 is no whole number"),
        ("copy: {concurrency: 1000}", "5:21: copy.concurrency: must be at most 256"),
        ("copy: {max_bytes_per_second: 0}", "5:30: copy.max_bytes_per_second: must be more than 0B"),
        ("fetch: {prefetch: unlimited}", "5:19: fetch.prefetch: cannot be unlimited: write a size, such as 4MiB"),
        ("fetch: {prefetch: [1]}", "5:19: fetch.prefetch: [1] is no size: write a number and a unit, such as 4MiB"),
        ("topics: {include: a}", "5:19: topics.include: must be a list, such as [a, b]"),
        ("topics: {include: [3]}", "5:20: topics.include[0]: 3 is no text: put it in quotes"),
        ("cluster_id: 3", "5:13: cluster_id: 3 is no text: put it in quotes"),
        ("cluster_id: ''", "5:13: cluster_id: must not be empty"),
        (
            "http: {listen: 9405}",
            "5:16: http.listen: '9405' is no address: write host:port, such as 127.0.0.1:9405 or [::]:9405",
        ),
        (
            "http: {listen: 'a:70000'}",
            "5:16: http.listen: 'a:70000' is no address: write host:port, such as 127.0.0.1:9405 or [::]:9405",
        ),
        (
            "logging: {level: warn}",
            "5:18: logging.level: 'warn' is not debug, info, warning or error: did you mean warning?",
        ),
        (
            "state_dir: ~/x",
            "5:12: state_dir: ~/x is not absolute: begin it with /, or with ./ if it is beside this file",
        ),
        ("metadata: {backend: mysql}", "5:21: metadata.backend: 'mysql' is not sqlite, postgres or redis"),
        ("shutdown: 3s", "5:1: unknown key shutdown: did you mean shutdown_timeout?"),
        ("bucket: a", "5:1: unknown key bucket: did you mean remote.s3.bucket or remote.gcs.bucket?"),
        (
            "interval: 3",
            (
                "5:1: unknown key interval: did you mean copy.interval or expire.interval or catalogue.interval or "
                "push.tail.interval?"
            ),
        ),
        ("3: 3", "5:1: unknown key 3: remove it; the file may hold "),
    ],
)
def test_wrong_value_is_a_fault_with_its_place_and_a_valid_form(tmp_path: Path, line: str, fault: str) -> None:
    (found,) = faults(tmp_path, MINIMAL + line + "\n")

    assert found.startswith(f"tierd.yaml:{fault}")


def test_python_name_of_a_setting_is_no_key_of_the_file(tmp_path: Path) -> None:
    assert faults(tmp_path, MINIMAL + "copy: {interval_s: 3s}\n") == [
        "tierd.yaml:5:8: unknown key copy.interval_s: did you mean copy.interval?"
    ]


def test_faults_of_an_empty_file_name_the_missing_sections(tmp_path: Path) -> None:
    assert faults(tmp_path, "") == [
        "tierd.yaml: log_dirs is missing: the broker's log.dirs, each with its owner",
        "tierd.yaml: remote is missing: the object store",
    ]


def test_a_list_without_log_dirs_is_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, MINIMAL.replace("[{path: /var/lib/kafka/data}]", "[]")) == [
        "tierd.yaml:1:11: log_dirs: must have at least one entry"
    ]


def test_missing_key_is_a_fault_at_its_section(tmp_path: Path) -> None:
    assert faults(tmp_path, MINIMAL.replace("{path: /mnt/tier}", "{}")) == [
        (
            "tierd.yaml:4:3: remote.filesystem.path is missing: directory of the objects, "
            "on another disk or a network mount"
        )
    ]


def test_a_backend_needs_its_section(tmp_path: Path) -> None:
    assert faults(tmp_path, MINIMAL.replace("backend: filesystem", "backend: s3")) == [
        "tierd.yaml:3:12: remote.backend: backend s3 needs the section remote.s3, with bucket at least"
    ]


def test_the_same_log_dir_twice_is_a_fault(tmp_path: Path) -> None:
    text = MINIMAL.replace("[{path: /var/lib/kafka/data}]", "[{path: /a/./b}, {path: /a/b/}]")

    assert faults(tmp_path, text) == ["tierd.yaml:1:35: log_dirs[1].path: /a/b is listed twice: remove one"]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("state_dir: /var/lib/kafka/data", "5:12: state_dir"),
        ("hold: {dir: /var/lib/kafka/data/../data/h}", "5:13: hold.dir"),
        ("metadata: {sqlite: {path: /var/lib/kafka/data/m.db}}", "5:27: metadata.sqlite.path"),
    ],
)
def test_path_of_tierd_in_a_log_dir_is_a_fault(tmp_path: Path, line: str, place: str) -> None:
    (found,) = faults(tmp_path, MINIMAL + line + "\n")

    assert found.startswith(f"tierd.yaml:{place}: ")
    assert "tierd writes nothing" in found


@pytest.mark.parametrize("prefix", ["/a", "a/", "a//b", "a/../b", ".", "a\\tb"])
def test_a_prefix_with_odd_slashes_is_a_fault(tmp_path: Path, prefix: str) -> None:
    (found,) = faults(tmp_path, MINIMAL + f'  key_prefix: "{prefix}"\n')

    assert "is no prefix" in found


def test_prefix_of_more_than_127_bytes_is_a_fault(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL + f"  key_prefix: {'a' * 127}\n").remote.key_prefix == "a" * 127
    assert faults(tmp_path, MINIMAL + f"  key_prefix: {'ä' * 64}\n") == [
        "tierd.yaml:5:15: remote.key_prefix: is 128 bytes long: at most 127 fit"
    ]


def test_paths_that_begin_with_a_dot_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "log_dirs: [{path: ./kafka}]\nstate_dir: ../state\nremote: {backend: filesystem, filesystem: {path: ./t}}\n",
    )

    assert config.log_dirs[0].path == tmp_path / "kafka"
    assert config.state_dir == tmp_path.parent / "state"
    assert config.remote.filesystem
    assert config.remote.filesystem.path == tmp_path / "t"


def test_numbers_and_switches_may_come_from_the_environment(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        S3 + "    max_concurrency: ${N}\n    path_style: ${STYLE}\n    part_size: ${PART}\n"
        "    endpoint_url: ${URL:-}\nlogging: {level: '${LEVEL}'}\nnode_id: ${ID:-3}\n",
        N="8", STYLE="true", PART="10MiB", LEVEL="debug",
    )  # fmt: skip
    s3 = config.remote.s3

    assert s3
    assert (s3.max_concurrency, s3.path_style, s3.part_size_bytes, s3.endpoint_url) == (8, True, 10 << 20, None)
    assert (config.logging.level, config.node_id) == ("debug", 3)


def test_a_wrong_number_from_the_environment_is_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, MINIMAL + "node_id: ${ID}\n", ID="one") == [
        "tierd.yaml:5:10: node_id: 'one' is no whole number"
    ]


@pytest.mark.parametrize("url", ["s3.example.com", "ftp://x", "https://user:pw@x", "https://"])
def test_an_endpoint_is_an_address_without_a_password(tmp_path: Path, url: str) -> None:
    (found,) = faults(tmp_path, S3 + f"    endpoint_url: {url}\n")

    assert "remote.s3.endpoint_url" in found
    assert "pw" not in found


def test_a_file_that_cannot_be_read_is_a_fault_without_a_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read: No such file or directory"):
        load_config(tmp_path / "gone.yaml", {})
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path, {})


def test_bytes_that_are_no_utf_8_have_a_place(tmp_path: Path) -> None:
    path = tmp_path / "tierd.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")

    with pytest.raises(ConfigError, match=r"tierd\.yaml:2:4: is not UTF-8"):
        load_config(path, {})


def test_a_huge_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, "#" * (1024 * 1024 + 1))

    assert "larger than 1MiB" in found


def test_a_syntax_error_is_the_only_fault(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, "log_dirs: [\nremote: {}]]\n")

    assert found.startswith("tierd.yaml:2:")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "tierd.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())

    assert load_config(path, {}).remote.backend == "filesystem"


# One file, written again for every example; a busy machine is no failure.
_ANY_FILE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
_KEYS = st.sampled_from(
    [
        "log_dirs",
        "path",
        "remote",
        "backend",
        "s3",
        "bucket",
        "copy",
        "interval",
        "hold",
        "dir",
        "topics",
        "include",
        "x",
        "",
    ]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["${A}", "s3", "/a", "3s"]),
)
_TREES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4))


@_ANY_FILE
@given(tree=st.dictionaries(_KEYS, _TREES, max_size=5))
def test_file_of_any_shape_is_loaded_or_refused_with_places(tmp_path: Path, tree: dict[str, object]) -> None:
    path = tmp_path / "tierd.yaml"
    path.write_text(json.dumps(tree))

    with pytest.raises(ConfigError) as caught:  # none of these trees has all required keys
        load_config(path, {})

    assert all(fault.line == 1 or "missing" in fault.message for fault in caught.value.faults)


@_ANY_FILE
@given(content=st.binary(max_size=60) | st.text("[]{}:-#&*!|>'\"%@`\n\t ab0,?", max_size=40).map(str.encode))
def test_file_of_random_bytes_is_refused_with_faults(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tierd.yaml"
    path.write_bytes(content)

    with pytest.raises(ConfigError):
        load_config(path, {})


SOUND = "log_dirs: [{path: /data}]\nremote: {backend: filesystem, filesystem: {path: /tier}}\n"


@pytest.mark.parametrize(
    ("text", "state_dir"),
    [
        ("", "/var/lib/tierd"),
        ("state_dir: /srv/tierd\ncopyy: 1\n", "/srv/tierd"),
        ("state_dir: ./state\nhttp: {listen: nowhere}\n", "{file}/state"),
        ("state_dir: ${STATE}/tierd\ncopy: {concurrency: many}\n", "/from/env/tierd"),
        ("copy: {concurrency: many}\n", "/var/lib/tierd"),
        ("log_dirs: [\nstate_dir: '/srv/tierd'  # ours\n", "/srv/tierd"),
        ("log_dirs: [\n  state_dir: /elsewhere\n", "/var/lib/tierd"),
    ],
    ids=["empty", "unknown key", "beside the file", "environment", "left out", "no YAML", "no YAML and left out"],
)
def test_state_dir_is_found_in_a_file_with_faults(tmp_path: Path, text: str, state_dir: str) -> None:
    file = tmp_path / "tierd.yaml"
    file.write_text(text)

    found, faults = load_state_dir(file, {"STATE": "/from/env"})

    assert str(found) == state_dir.replace("{file}", str(tmp_path))
    assert faults is not None
    assert faults.faults


def test_state_dir_of_a_sound_file_is_found_without_faults(tmp_path: Path) -> None:
    file = tmp_path / "tierd.yaml"
    file.write_text(f"state_dir: /srv/tierd\n{SOUND}")

    assert load_state_dir(file, {}) == (Path("/srv/tierd"), None)


@pytest.mark.parametrize(
    "text", ["state_dir: relative", "state_dir: [/a]", "state_dir: 7", "state_dir: ${UNSET}", "[\nstate_dir: ["]
)
def test_state_dir_that_cannot_be_used_is_a_fault(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tierd.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError):
        load_state_dir(file, {})


def test_state_dir_of_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_state_dir(tmp_path / "absent.yaml", {})
