"""Tests that take commands from pages and run them, each with the function by which it takes them."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.cli import test_python_page, test_restore_page, test_state_stores_page
from tests.scenarios import printed_commands, restore_page, test_drill
from tests.scenarios.endpoint_page import PRINTED_ADDRESS, blocks
from tests.transcripts.pages.fenced import ROOT
from tests.transcripts.pages.scenes import OtherTest

_SCENARIOS: Final = "tests/scenarios"


def _lines(commands: Iterable[Sequence[str]]) -> str:
    return "\n".join(shlex.join(["tierd", *arguments]) for arguments in commands)


def _section(page: str, module: str, test: str, heading: str) -> OtherTest:
    """Return a test that runs the shell blocks of a section."""
    taken = partial(printed_commands.printed_commands, ROOT / "docs" / page, heading)
    return OtherTest(f"{_SCENARIOS}/{module}.py::{test}", ("printed_commands", heading), taken)


def _blocks(page: Path, test: str, heading: str, *, module: str = "test_endpoint_page") -> OtherTest:
    """Return a test of the endpoint that runs the blocks below a heading."""

    def taken() -> str:
        return "\n".join(each.text for each in blocks(page) if (each.heading, each.language) == (heading, "bash"))

    return OtherTest(f"{_SCENARIOS}/{module}.py::{test}", ("blocks", heading), taken)


def _restore_verbs(module: str, test: str, *verbs: str) -> OtherTest:
    """Return a test that runs the commands of verbs of docs/restore.md."""
    return OtherTest(
        f"{module}.py::{test}",
        ("printed_commands", *verbs),
        lambda: _lines(test_restore_page.printed_commands(*verbs)),
    )


def _restore_section(module: str, test: str, heading: str) -> OtherTest:
    """Return a test that runs the commands of a section of docs/restore.md against real brokers."""
    return OtherTest(
        f"{_SCENARIOS}/{module}.py::{test}",
        ("run_printed", heading),
        lambda: _lines(each for each in restore_page.printed_commands(heading, {}) if each[1] in {"log-dir", "groups"}),
    )


def _scripts() -> Iterator[OtherTest]:
    for test, program in (
        ("test_printed_command_has_the_tool_of_kafka_read_what_was_restored", "kafka-dump-log.sh"),
        ("test_printed_command_has_a_broker_start_on_all_partitions", "kafka-server-start.sh"),
    ):
        taken = partial(test_drill.printed_script, program)
        yield OtherTest(f"{_SCENARIOS}/test_drill.py::{test}", ("printed_script", program), taken)


def _of_readme() -> str:
    return "\n".join(each.text for each in blocks(ROOT / "README.md") if PRINTED_ADDRESS in each.text)


README: Final = (
    OtherTest(
        f"{_SCENARIOS}/test_endpoint_page.py::test_readme_ends_its_five_minutes_with_clients_that_read",
        ("blocks", "PRINTED_ADDRESS"),
        _of_readme,
    ),
)
CONTROL_PLANE: Final = (
    _section(
        "control-plane.md",
        "test_control_plane_page",
        "test_commands_of_the_page_start_two_daemons_that_know_of_each_other",
        "Try it",
    ),
    _section(
        "control-plane.md",
        "test_control_plane_page",
        "test_commands_of_the_page_make_certificates_that_the_authority_has_signed",
        "Set it up",
    ),
)
OPERATIONS: Final = tuple(_scripts())
PUSH: Final = tuple(
    _section("push.md", "test_push_page", f"test_{test}", heading)
    for heading, test in (
        ("Try it", "commands_of_the_page_replicate_compare_and_restore"),
        ("Set it up", "commands_of_the_page_make_a_certificate_for_each_node"),
        ("Compare the copies", "comparisons_and_restores_of_the_page_run"),
        ("A host is lost", "comparisons_and_restores_of_the_page_run"),
    )
)
PYTHON: Final = (
    OtherTest(
        "tests/cli/test_python_page.py::test_every_printed_block_does_what_the_page_says",
        ("printed_blocks",),
        lambda: "\n".join(each.text for each in test_python_page.printed_blocks() if "tierd " in each.text),
    ),
)
_ENDPOINT_PAGE: Final = ROOT / "docs/read-endpoint.md"
READ_ENDPOINT: Final = (
    *(
        _blocks(_ENDPOINT_PAGE, f"test_{test}", heading)
        for heading, test in (
            ("Switch it on", "configuration_of_one_line_is_that_of_the_demo"),
            ("Console consumer", "tools_of_kafka_do_what_the_page_says"),
            ("Performance test", "tools_of_kafka_do_what_the_page_says"),
            ("Offsets", "tools_of_kafka_do_what_the_page_says"),
            ("Consumer groups tool", "tools_of_kafka_do_what_the_page_says"),
            ("Consumer groups", "tools_of_kafka_do_what_the_page_says"),
            ("franz-go", "program_of_franz_go_reads"),
            ("kcat", "kcat_reads_and_lists"),
            ("Kafka Streams", "global_table_of_kafka_streams_is_filled"),
            ("Clients on other hosts", "client_on_another_host_logs_in_and_reads"),
            ("A host without a broker", "serve_serves_the_bucket_of_a_cluster_that_is_gone"),
            ("After a restore", "groups_are_set_while_applications_are_held_and_released_after"),
        )
    ),
    _blocks(
        _ENDPOINT_PAGE,
        "test_mirror_maker_copies_records_and_groups_into_a_live_cluster",
        "MirrorMaker 2",
        module="test_endpoint_clients",
    ),
)
RESTORE: Final = (
    _restore_verbs(
        "tests/cli/test_restore_page", "test_every_printed_command_does_what_the_page_says", "partition", "log-dir"
    ),
    _restore_verbs("tests/cli/test_restore_page", "test_printed_commands_that_lift_holds_run", "release-retention"),
    _restore_verbs(
        "tests/cli/test_restore_page",
        "test_printed_commands_of_the_quarantine_run_without_a_daemon",
        "hold",
        "release",
    ),
    OtherTest(
        "tests/cli/test_restore_page.py::test_printed_loop_thaws_each_archived_object_of_the_plan",
        ("printed_loop",),
        test_restore_page.printed_loop,
    ),
    _restore_section(
        "test_restore_only_broker",
        "test_only_broker_comes_back_after_its_disk_was_wiped_and_a_new_cluster_gets_its_topics",
        "The disk of the only broker is wiped",
    ),
    _restore_section(
        "test_restore_only_broker",
        "test_only_broker_comes_back_after_its_disk_was_wiped_and_a_new_cluster_gets_its_topics",
        "The whole cluster is gone",
    ),
    OtherTest(
        f"{_SCENARIOS}/test_restore_live_cluster.py::"
        "test_records_are_there_once_and_in_order_after_kills_and_pauses_of_tierd_and_of_the_broker",
        ("commands_of_the_page", "--map"),
        lambda: _lines(
            each
            for each in test_restore_page.printed_commands("topic", "groups")
            if each[1] == "topic" or "--map" in each
        ),
    ),
)
STATE_STORES: Final = (
    OtherTest(
        "tests/cli/test_state_stores_page.py::test_every_printed_command_does_what_the_page_says",
        ("printed_commands",),
        lambda: _lines(test_state_stores_page.printed_commands()),
    ),
)
