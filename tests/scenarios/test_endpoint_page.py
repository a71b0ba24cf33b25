"""Commands of docs/read-endpoint.md and of the README, run as they are printed, with other addresses and paths."""

import asyncio
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.catalogues import seen, write_catalogue
from tests.fakes.log_dirs import CLUSTER_ID
from tests.scenarios import test_endpoint_clients
from tests.scenarios.endpoint_page import (
    PAGE,
    PRINTED_ADDRESS,
    ROOT,
    PageRun,
    block,
    blocks,
    demo_server,
    free_address,
    parsed_yaml,
)
from tests.scenarios.golden_server import endpoint_settings
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.certificates import Authority
from tests.services.kafka_clients import mirror_maker
from tests.services.kafka_clients.franz_go import EXAMPLE
from tests.services.kafka_clients.java_tools import JavaTools
from tests.services.kafka_clients.programs import installed_program
from tests.services.kafka_fixtures import fetched_or_skip
from tests.services.kafka_node import kafka_environment
from tests.services.kafka_streams import require_kafka_streams
from tests.services.waiting import wait_until
from tierd.cli.demo.writer import prepare
from tierd.config import load_config
from tierd.log import list_log_dir

pytestmark = pytest.mark.service("kafka")

VERSIONS = ("3.9.2", "4.3.1")
RECORDS = 1200  # of each partition of the demo, in one minute of history
PASSWORD = "etl-secret"


@pytest.fixture(scope="module", params=VERSIONS)
def tools(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_jars: Callable[[str], str]
) -> Iterator[JavaTools]:
    """Return the command line tools of a version."""
    with JavaTools(kafka_jars(request.param), tmp_path_factory.mktemp("tools") / "tools.log") as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, warm_tierd: WarmTierd) -> Iterator[tuple[str, Installation]]:
    """Serve the demo; yield the address."""
    folder, address = tmp_path_factory.mktemp("demo"), free_address()
    settings = endpoint_settings(int(address.rpartition(":")[2]))
    tierd = Installation(folder / "tierd", [folder / "kafka"], settings=settings, warm=warm_tierd)
    with demo_server(tierd, folder / "kafka", cluster_id=CLUSTER_ID):
        yield address, tierd


@pytest.fixture
def page(server: tuple[str, Installation], tmp_path: Path) -> PageRun:
    """Run commands against the demo that need no tool of Kafka."""
    return PageRun(tmp_path, {PRINTED_ADDRESS: server[0]}, tierd=server[1])


def printed_by(cell: str) -> list[str]:
    """Return the lines that a program in Python prints."""
    done = subprocess.run([sys.executable, "-c", cell], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# ------------------------------------------------------------------------------------------------------- clients


def test_tools_of_kafka_do_what_the_page_says(
    tools: JavaTools, server: tuple[str, Installation], tmp_path: Path
) -> None:
    run = PageRun(tmp_path, {PRINTED_ADDRESS: server[0]}, tools=tools)

    for line, printed in run.commands("Console consumer"):
        (count,) = re.findall(r"--max-messages (\d+)", line)
        assert f"Processed a total of {count} messages" in printed, line
        assert printed.count('"customer"') == int(count)
    ((_, printed),) = run.commands("Performance test")
    assert int(re.findall(r"^20.*", printed, re.MULTILINE)[-1].split(", ")[4]) >= 1000, printed
    offsets = [re.findall(r"^orders:(\d):(\d+)$", printed, re.MULTILINE) for _, printed in run.commands("Offsets")]
    earliest, latest, local, tiered, at_time = (
        {partition: int(offset) for partition, offset in found} for found in offsets
    )
    assert earliest == at_time == {"0": 0, "1": 0}
    assert latest == {"0": RECORDS, "1": RECORDS}
    assert all(0 < local[each] <= tiered[each] < RECORDS for each in latest)
    described, to_time, to_earliest, listed = (printed for _, printed in run.commands("Consumer groups tool"))
    assert re.search(r"^readers +orders +0 +\d+ +1200 +\d+ ", described, re.MULTILINE)
    assert all(re.search(r"readers +orders +1 +0\b", printed) for printed in (to_time, to_earliest))
    assert "readers" in listed.splitlines()
    exported, imported = (printed for _, printed in run.commands("Consumer groups"))
    assert sorted(exported.split()) == ["orders,0,0", "orders,1,0"]
    assert re.search(r"readers +orders +1 +0\b", imported)


@pytest.mark.parametrize("tools", VERSIONS[-1:], indirect=True)
def test_group_of_the_new_protocol_is_refused_with_the_error_of_the_page(
    tools: JavaTools, server: tuple[str, Installation]
) -> None:
    new_protocol = ("--command-property", "group.protocol=consumer", "--timeout-ms", "20000")
    refused = tools.run("kafka-console-consumer", server[0], "--topic", "orders", "--from-beginning", *new_protocol)

    (error,) = re.findall(r"`(UnsupportedVersionException: The cluster [^`]*)`", PAGE.read_text())
    assert error in refused.errors


@pytest.mark.parametrize(("heading", "topic"), [("librdkafka and confluent-kafka", "payments"), ("aiokafka", "orders")])
def test_python_program_of_the_page_reads_the_topic(heading: str, topic: str, page: PageRun) -> None:
    printed = printed_by(page.here(block(heading, "python")))

    assert len(printed) == 5
    assert all(f'"topic": "{topic}"' in line for line in printed)


def test_program_of_franz_go_reads(page: PageRun, tmp_path: Path) -> None:
    fetched_or_skip(lambda: installed_program(EXAMPLE), EXAMPLE)
    source = (ROOT / "tests/services/kafka_clients/franz/example/main.go").read_text()
    assert source.partition("\n")[2] == block("franz-go", "go")
    go = f'[ "$1 $2" = "run ." ] && shift 2 && exec {installed_program(EXAMPLE)} "$@"'

    ((_, printed),) = PageRun(tmp_path, page.places, programs={"go": go}).commands("franz-go")

    assert len(printed.splitlines()) == printed.count('"topic": "orders"') == 5


def test_kcat_reads_and_lists(page: PageRun) -> None:
    fetched_or_skip(lambda: installed_program("kcat"), "kcat")

    some, committed, listed = (printed for _, printed in page.commands("kcat"))

    assert len(some.splitlines()) == 5
    assert 0 < len(committed.splitlines()) < RECORDS
    assert 'topic "orders" with 2 partitions' in listed


def test_global_table_of_kafka_streams_is_filled(page: PageRun, tmp_path: Path) -> None:
    version = VERSIONS[-1]
    fetched_or_skip(lambda: require_kafka_streams(version), "Kafka Streams")
    home = tmp_path / "kafka"
    home.mkdir()
    (home / "libs").symlink_to(Path(kafka_environment({})["KAFKA_LIBS_DIR"]).absolute() / version)
    run = PageRun(tmp_path, page.places, environment={"KAFKA_HOME": str(home)})
    (tmp_path / "LastOrders.java").write_text(run.here(block("Kafka Streams", "java")))

    ((_, printed),) = run.commands("Kafka Streams")

    assert int(printed.split(" customers")[0].split()[-1]) > 100


@pytest.mark.parametrize("tools", VERSIONS[-1:], indirect=True)
def test_readme_ends_its_five_minutes_with_clients_that_read(tools: JavaTools, page: PageRun, tmp_path: Path) -> None:
    found = [each for each in blocks(ROOT / "README.md") if PRINTED_ADDRESS in each.text]
    assert [(each.heading, each.language) for each in found] == [("Five minutes", "bash"), ("Five minutes", "python")]

    assert "Processed a total of 5 messages" in PageRun(tmp_path, page.places, tools=tools).run(found[0].text)
    assert len(printed_by(page.here(found[1].text))) == 5
    assert load_config(ROOT / "config" / "quickstart.yaml", {}).kafka.listeners[0].listen == PRINTED_ADDRESS


# -------------------------------------------------------------------------------------------------- configurations


def test_every_configuration_of_the_page_is_valid(tmp_path: Path) -> None:
    base: Settings = {
        "log_dirs": [{"path": "/var/lib/kafka/data"}],
        "remote": {"backend": "filesystem", "filesystem": {"path": "/var/lib/tier"}},
        "metadata": {"backend": "redis", "redis": {"url": "redis://127.0.0.1:6379/0"}},
    }
    (tmp_path / "password-file").write_text(PASSWORD)
    page = PageRun(tmp_path, {"/etc/tierd/endpoint-etl": str(tmp_path / "password-file")})
    above = page.settings("Clients on other hosts")["kafka"]
    printed = [page.here(each.text) for each in blocks() if each.language == "yaml"]
    assert len(printed) == 5
    for text in printed:
        settings = base | parsed_yaml(text)
        if "as above" in text:
            settings["kafka"] |= {name: above[name] for name in ("tls", "sasl", "access", "quotas")}
        (tmp_path / "tierd.yaml").write_text(json.dumps(settings))
        load_config(tmp_path / "tierd.yaml", {})


def test_configuration_of_one_line_is_that_of_the_demo(page: PageRun, server: tuple[str, Installation]) -> None:
    ((_, printed),) = page.commands("Switch it on")
    assert printed.strip()
    printed_settings = page.settings("Switch it on")
    assert printed_settings["kafka"]["listeners"] == server[1].settings["kafka"]["listeners"]
    assert "read endpoint: 3 topics, connections: " in page.run("tierd status")


@pytest.mark.parametrize("tools", VERSIONS[-1:], indirect=True)
def test_client_on_another_host_logs_in_and_reads(tools: JavaTools, tmp_path: Path, warm_tierd: WarmTierd) -> None:
    fetched_or_skip(lambda: installed_program("kcat"), "kcat")
    authority = Authority(tmp_path / "pki", "example")
    certificate = authority.issue("endpoint", hosts=("localhost",))
    address = free_address()
    places = {
        "0.0.0.0:9193": address,
        "tierd-1.example.com:9193": address.replace("127.0.0.1", "localhost"),
        "/etc/tierd/endpoint.pem": str(certificate.cert_file),
        "/etc/tierd/endpoint-key.pem": str(certificate.key_file),
        "/etc/tierd/endpoint-etl": str(tmp_path / "password-file"),
        "/etc/ssl/example-ca.pem": str(authority.ca_file),
    }
    (tmp_path / "password-file").write_text(PASSWORD)
    heading = "Clients on other hosts"
    run = PageRun(tmp_path, places, tools=tools)
    (tmp_path / "client.properties").write_text(run.here(block(heading, "properties")))
    tierd = Installation(
        tmp_path / "tierd",
        [tmp_path / "kafka"],
        settings=run.settings(heading),
        warm=warm_tierd,
    )
    run = PageRun(tmp_path, places, tierd=tierd, tools=tools)

    with demo_server(tierd, tmp_path / "kafka", cluster_id=CLUSTER_ID):
        console, kcat, hashed = (printed for _, printed in run.commands(heading))

    assert "Processed a total of 5 messages" in console
    assert len(kcat.splitlines()) == 5
    assert hashed.startswith("scram_sha_256: salt=")


# ---------------------------------------------------------------------------------------------- without a broker


def test_serve_serves_the_bucket_of_a_cluster_that_is_gone(
    server: tuple[str, Installation], tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    fetched_or_skip(lambda: installed_program("kcat"), "kcat")
    heading, address = "A host without a broker", free_address()
    settings = PageRun(tmp_path, {}).settings(heading) | {
        "state_dir": str(tmp_path / "state"),
        "remote": server[1].settings["remote"],
        "http": {"listen": free_address()},
    }
    (tmp_path / "serve.yaml").write_text(json.dumps(settings))
    command = PageRun(tmp_path, {PRINTED_ADDRESS: address, "serve.yaml": str(tmp_path / "serve.yaml")}).here(
        block(heading, "bash")
    )

    log = tmp_path / "serve.log"
    log.touch()
    process = warm_tierd.daemons.start(command.split()[1:], log)
    try:
        wait_until(lambda: '"ready"' in log.read_text(), what="tierd serve", deadline_s=120, last_seen=log.read_text)
        run = PageRun(tmp_path, {PRINTED_ADDRESS: address})
        printed = run.run(f"kcat -b {PRINTED_ADDRESS} -C -t orders -o beginning -e -q")
    finally:
        process.kill()
        process.wait(20)

    assert RECORDS < len(printed.splitlines()) < 2 * RECORDS


@pytest.mark.parametrize("tools", VERSIONS[-1:], indirect=True)
def test_groups_are_set_while_applications_are_held_and_released_after(
    tools: JavaTools, tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    certificate = Authority(tmp_path / "pki", "example").issue("endpoint", hosts=("127.0.0.1",))
    operators, applications = free_address(), free_address()
    places = {
        PRINTED_ADDRESS: operators,
        "0.0.0.0:9193": applications,
        "tierd-1.example.com:9193": applications,
        "/etc/tierd/endpoint.pem": str(certificate.cert_file),
        "/etc/tierd/endpoint-key.pem": str(certificate.key_file),
        "/etc/tierd/endpoint-etl": str(tmp_path / "password-file"),
    }
    (tmp_path / "password-file").write_text(PASSWORD)
    heading, log_dir = "After a restore", tmp_path / "kafka"
    settings = PageRun(tmp_path, places).settings(heading)
    tierd = Installation(tmp_path / "tierd", [log_dir], settings=settings, warm=warm_tierd)
    prepare(log_dir, cluster_id=CLUSTER_ID, node_id=1)
    orders = next(
        each.partition for each in list_log_dir(log_dir).partitions if str(each.topic_partition) == "orders-0"
    )
    positions = seen(orders, node_id=2, taken_ms=1, end_offset=RECORDS, committed=700)
    asyncio.run(write_catalogue(tierd.store_dir, positions=[positions]))

    with demo_server(tierd, log_dir, cluster_id=CLUSTER_ID):
        run = PageRun(tmp_path, places, tierd=tierd, tools=tools)
        hold, plan, restored, described, released = (printed for _, printed in run.commands(heading))

    assert "held back: clients of listener APPLICATIONS" in hold
    assert "billing" in plan
    assert "billing" in restored
    assert re.search(r"^billing +orders +0 +700 +1200 +500 ", described, re.MULTILINE), described
    assert "released: principals User:batch-.*" in released


# -------------------------------------------------------------------------------------------------------- blocks

TAKEN: tuple[tuple[Callable[..., object], str, str], ...] = (
    (test_configuration_of_one_line_is_that_of_the_demo, "Switch it on", "yaml"),
    (test_configuration_of_one_line_is_that_of_the_demo, "Switch it on", "bash"),
    # The clients.
    (test_tools_of_kafka_do_what_the_page_says, "Console consumer", "bash"),
    (test_tools_of_kafka_do_what_the_page_says, "Performance test", "bash"),
    (test_tools_of_kafka_do_what_the_page_says, "Offsets", "bash"),
    (test_tools_of_kafka_do_what_the_page_says, "Consumer groups tool", "bash"),
    (test_python_program_of_the_page_reads_the_topic, "librdkafka and confluent-kafka", "python"),
    (test_python_program_of_the_page_reads_the_topic, "aiokafka", "python"),
    (test_program_of_franz_go_reads, "franz-go", "go"),
    (test_program_of_franz_go_reads, "franz-go", "bash"),
    (test_kcat_reads_and_lists, "kcat", "bash"),
    (test_endpoint_clients.test_cell_of_the_page_counts_in_spark, "Spark", "python"),
    (mirror_maker.printed_settings, "MirrorMaker 2", "properties"),
    (mirror_maker.printed_command, "MirrorMaker 2", "bash"),
    (test_global_table_of_kafka_streams_is_filled, "Kafka Streams", "java"),
    (test_global_table_of_kafka_streams_is_filled, "Kafka Streams", "bash"),
    # Other hosts, daemons and groups.
    (test_client_on_another_host_logs_in_and_reads, "Clients on other hosts", "yaml"),
    (test_client_on_another_host_logs_in_and_reads, "Clients on other hosts", "properties"),
    (test_client_on_another_host_logs_in_and_reads, "Clients on other hosts", "bash"),
    (test_every_configuration_of_the_page_is_valid, "Several daemons", "yaml"),
    (test_serve_serves_the_bucket_of_a_cluster_that_is_gone, "A host without a broker", "yaml"),
    (test_serve_serves_the_bucket_of_a_cluster_that_is_gone, "A host without a broker", "bash"),
    (test_tools_of_kafka_do_what_the_page_says, "Consumer groups", "bash"),
    (test_groups_are_set_while_applications_are_held_and_released_after, "After a restore", "yaml"),
    (test_groups_are_set_while_applications_are_held_and_released_after, "After a restore", "bash"),
)
"""Tests, or functions that they call, each with the heading and the language of blocks that it takes from the page."""


def test_page_has_a_command_for_every_client_and_no_block_that_is_not_run() -> None:
    assert {(each.heading, each.language) for each in blocks() if each.language} == {each[1:] for each in TAKEN}
    assert [each.text for each in blocks() if not each.language] == ["systemctl restart tierd\n"]


def test_every_function_that_takes_a_block_names_its_heading_or_takes_all_of_the_language() -> None:
    unnamed = [
        (taker.__name__, heading, language)
        for taker, heading, language in TAKEN
        if not any(words in inspect.getsource(taker) for words in (f'"{heading}"', f'each.language == "{language}"'))
    ]
    assert unnamed == []
