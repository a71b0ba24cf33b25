"""Every event of the log room names its partition and log dir, so that one search finds all events of a log."""

import ast
from pathlib import Path

import pytest

import tierd.log
from tierd.log.files.directory import partition_fields

ROOM = Path(tierd.log.__file__).parent
LEVELS = frozenset({"debug", "info", "warning", "error", "exception"})
OF_NO_PARTITION = {
    "checkpoint_failed": "a log dir",
    "checkpoint_unreadable": "a file of a log dir",
    "clean_marker_left_out": "a log dir",
    "clean_marker_not_written": "a log dir",
    "clean_shutdown_file_unreadable": "a log dir",
    "log_dir_offline": "a log dir",
    "log_dirs_duty_failed": "all log dirs",
    "logs_closed": "all log dirs",
    "logs_loaded": "all log dirs",
    "no_logs_found": "a log dir",
    "partition_not_watched": "the watcher of a broker's log dirs, which names the path",
    "recovering_logs": "a log dir",
    "recovery_skipped": "a log dir",
    "watch_limit_reached": "the watcher of a broker's log dirs, which names the path",
    "watch_queue_overflowed": "the watcher of a broker's log dirs",
}


def events() -> list[tuple[str, str, ast.Call]]:
    found = []
    for path in sorted(ROOM.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("log", "_LOG")
            ):
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}: the name of an event is fixed"
                found.append((f"{path.relative_to(ROOM)}:{node.lineno}", str(node.args[0].value), node))
    return found


def test_events_of_a_partition_carry_its_name_and_log_dir() -> None:
    silent = [
        f"{place} {name}"
        for place, name, call in events()
        if name not in OF_NO_PARTITION and not any(keyword.arg is None for keyword in call.keywords)
    ]
    assert len(events()) > 40
    assert silent == [], "add **partition_fields(directory), or **state.where"


def test_list_of_events_that_are_of_no_partition_has_no_stale_names() -> None:
    assert {name for _, name, _ in events()} >= set(OF_NO_PARTITION)


@pytest.mark.parametrize(
    ("directory", "partition"),
    [
        ("orders-0", "orders-0"),
        ("a.b-c-12", "a.b-c-12"),
        (f"orders-0.{'a' * 32}-delete", "orders-0"),
        ("something", "something"),
    ],
)
def test_partition_fields_name_the_partition_of_a_renamed_directory(directory: str, partition: str) -> None:
    assert partition_fields(Path("/data") / directory) == {"partition": partition, "log_dir": "/data"}
