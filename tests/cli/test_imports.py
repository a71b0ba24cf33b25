"""Modules that a command imports: a question to the daemon costs no more than the question."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.answering_daemon import Request, answering_daemon
from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation

STATUS = {"version": "1", "pid": 7, "not_ready": [], "partitions": []}
ANSWERS: dict[str, object] = {
    "status": STATUS,
    "pause": [],
    "resume": [],
    "sync": [],
    "peers": {"peers": []},
    "ask-peer": {"node": 2, "answer": {}},
}

CLIENTS = {"aiobotocore", "aiohttp", "aiomqtt", "asyncpg", "botocore", "gcloud", "kio", "obstore", "redis"}
DATA = {"cramjam", "crc32c", "cryptography", "numba", "numpy", "pandas", "pyarrow", "pyspark", "zstandard"}
DAEMON = {"asyncinotify", "croniter", "prometheus_client", "sqlite3", "structlog"}
ROOMS = {
    *("tierd.arrow", "tierd.control", "tierd.cost", "tierd.exporting", "tierd.kernels", "tierd.log", "tierd.metadata"),
    *("tierd.pipeline", "tierd.remote", "tierd.replication", "tierd.restore", "tierd.scanning", "tierd.telemetry"),
    "tierd.tiering",
}
OF_PEOPLE = {"attr", "pygments", "rich"}
OF_A_QUESTION = (
    CLIENTS | DATA | DAEMON | ROOMS | OF_PEOPLE | {"asyncio", "tierd.config.schema", "tierd.serve.http_server"}
)

OF_ROWS = (CLIENTS | DATA | OF_PEOPLE | {"prometheus_client", "tierd.remote", "tierd.restore", "tierd.pipeline"}) - {
    "crc32c"
}
OF_ROWS |= {"tierd.app.engine.deployment", "tierd.config.schema", "tierd.log.partition", "tierd.log.log_service"}
OF_PLACES = (OF_ROWS - {"tierd.remote"}) | {
    *("tierd.app.engine.tier_reader", "tierd.remote.object_store_factory", "tierd.remote.segments"),
    *("tierd.tiering.local.held_files", "tierd.tiering.reading.fetch_service", "tierd.tiering.removing"),
}
OF_BATCHES = {"cramjam", "zstandard"}  # of the files of the local log, whose end both verbs look for
OF_A_TIER_READ = (
    CLIENTS | OF_PEOPLE | {"cryptography", "numba", "numpy", "pandas", "prometheus_client", "pyarrow"}
) | {
    *(
        "tierd.app.engine.deployment",
        "tierd.config.schema",
        "tierd.pipeline",
        "tierd.restore",
        "tierd.tiering.removing",
    ),
}
OF_A_LEDGER = (
    CLIENTS | DATA | DAEMON | OF_PEOPLE | {"tierd.config.schema", "tierd.log", "tierd.metadata", "tierd.remote"}
)
OF_SOME_COPIES = (CLIENTS | DATA) - {"cramjam", "crc32c", "zstandard"} | {
    *(
        "tierd.app.push",
        "tierd.control.mqtt",
        "tierd.log.log_service",
        "tierd.log.partition",
        "tierd.pipeline.planning",
    ),
    *("tierd.replication", "tierd.restore", "tierd.serve.http_server"),
}

PROBE = """
import atexit, sys
atexit.register(lambda: open({file!r}, "w").write("\\n".join(sys.modules)))
sys.argv = ["tierd", *{arguments!r}]
from tierd.cli import main
main()
"""


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """Answer the verbs of ``ANSWERS`` in a state directory, beside its configuration."""

    def answer(request: Request) -> object:
        return ANSWERS[request["command"]]

    (tmp_path / "tierd.yaml").write_text("state_dir: .  # of the file\nremote: {backend: s3}\n")
    with answering_daemon(tmp_path, answer):
        yield tmp_path


def imported_by(arguments: list[str], folder: Path, *, exit_code: int = 0) -> set[str]:
    """Run a command to its end, which has to be ``exit_code``; return the modules that it imported."""
    file = folder / "modules"
    program = PROBE.format(file=str(file), arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == exit_code, ended.stdout + ended.stderr
    return set(file.read_text().split())


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", "--json"],
        ["status", "--node", "2"],
        ["pause", "orders-0"],
        ["resume"],
        ["sync", "--json"],
        ["peers"],
    ],
    ids=" ".join,
)
def test_question_to_the_daemon_imports_the_client_of_its_socket_alone(words: list[str], state_dir: Path) -> None:
    imported = imported_by([*words, "--config", str(state_dir / "tierd.yaml")], state_dir)

    assert "tierd.serve.control_client" in imported
    assert sorted(imported & OF_A_QUESTION) == []
    assert len([name for name in imported if name.split(".")[0] == "tierd"]) < 45


def test_doctor_imports_no_more_than_a_question_and_leaves_the_rest_to_the_check(state_dir: Path) -> None:
    words = ["doctor", "--json", "--config", str(state_dir / "tierd.yaml")]

    imported = imported_by(words, state_dir, exit_code=1)  # the file has no log_dirs

    assert "tierd.cli.doctor.report" in imported
    assert sorted(imported & (OF_A_QUESTION | {"rich", "tarfile"})) == []
    assert len([name for name in imported if name.split(".")[0] == "tierd"]) < 60


@pytest.mark.parametrize(
    ("words", "beside"),
    [
        (["segments", "orders-0"], set()),
        (["segments", "orders-0", "--json"], set()),
        (["topics"], set()),
        (["erase", "list"], {"tierd.pipeline"}),
    ],
    ids=["segments", "segments --json", "topics", "erase list"],
)
def test_rows_of_the_metadata_are_listed_without_the_object_store_and_the_schema_of_the_file(
    words: list[str], beside: set[str], copied: Installation, tmp_path: Path
) -> None:
    imported = imported_by([*words, "--config", str(copied.config_file)], tmp_path)

    assert "tierd.metadata.kv.sqlite" in imported
    assert sorted(imported & OF_ROWS - beside) == []
    assert not {"tierd.pipeline.committing.leader", "tierd.pipeline.running.spark_run"} & imported


@pytest.mark.parametrize(
    ("words", "module", "beside"),
    [
        (["deletions"], "tierd.tiering.removing.ledger", set()),
        (["compact", "--history"], "tierd.pipeline.running.run_history", {"structlog"}),
        (["drill", "--history"], "tierd.restore.drill.drill_history", {"structlog"}),
        (["cost"], "tierd.cost.usage_ledger", {"structlog"}),
    ],
    ids=["deletions", "compact --history", "drill --history", "cost"],
)
def test_ledger_is_listed_without_the_schema_of_the_file_and_the_metadata(
    words: list[str], module: str, beside: set[str], copied: Installation, tmp_path: Path
) -> None:
    imported = imported_by([*words, "--config", str(copied.config_file)], tmp_path)

    assert module in imported
    assert sorted(imported & OF_A_LEDGER - beside) == []


@pytest.mark.parametrize(
    "words",
    [
        ["offsets", "orders-0"],
        ["offsets", "orders-0", "--json"],
        ["explain", "orders-0", "3"],  # copied, and in the local log
        ["explain", "orders-0", "13", "--json"],  # in the active segment
    ],
    ids=["offsets", "offsets --json", "explain", "explain --json"],
)
def test_places_of_records_are_told_without_the_object_store_and_the_schema_of_the_file(
    words: list[str], copied: Installation, tmp_path: Path
) -> None:
    imported = imported_by([*words, "--config", str(copied.config_file)], tmp_path)

    assert "tierd.app.engine.tiered_log_reader" in imported
    assert sorted(imported & OF_PLACES - OF_BATCHES) == []
    assert len([name for name in imported if name.split(".")[0] == "tierd"]) < 160


@pytest.mark.parametrize(
    "words", [["explain", "orders-0", "3"], ["offsets", "orders-0", "--time", "0"]], ids=["explain", "offsets --time"]
)
def test_record_of_the_tier_is_found_without_the_schema_of_the_file(
    words: list[str], copied: Installation, log_dir: LogDirWriter, tmp_path: Path
) -> None:
    for file in (log_dir.path / "orders-0").glob("00000000000000000000.*"):
        file.unlink()

    imported = imported_by([*words, "--config", str(copied.config_file)], tmp_path)

    assert "tierd.remote.segments.segment_reader" in imported
    assert sorted(imported & OF_A_TIER_READ) == []


def test_copy_of_brokers_logs_imports_no_encryption_no_job_and_no_logs_of_its_own(
    copied: Installation, tmp_path: Path
) -> None:
    imported = imported_by(["copy", "--once", "--config", str(copied.config_file)], tmp_path)

    assert "tierd.tiering.copying.copy_task" in imported
    assert sorted(imported & OF_SOME_COPIES) == []


def test_probe_lists_what_was_imported(tmp_path: Path) -> None:
    file = tmp_path / "tierd.yaml"
    file.write_text(json.dumps({"log_dirs": [{"path": str(tmp_path / "kafka")}], "remote": {"backend": "none"}}))

    ended = subprocess.run(
        [sys.executable, "-c", PROBE.format(file=str(tmp_path / "modules"), arguments=["check-config", "-h"])],
        check=False,
        capture_output=True,
    )

    assert ended.returncode == 0
    assert "tierd.config.schema" in (tmp_path / "modules").read_text().split()
