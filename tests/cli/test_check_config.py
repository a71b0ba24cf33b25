"""``tierd check-config`` with real servers: its findings, and a store and state dir without traces of the check."""

from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import run_tierd
from tests.scenarios.installation import Installation
from tests.services.azure import AzureService
from tests.services.gcs import GcsService
from tests.services.s3 import S3Admin, S3Service


def outcomes(tierd: Installation, *, exit_code: int = 0) -> dict[str, str]:
    ended = tierd.tierd("check-config", "--online", "--json")
    assert ended.exit_code == exit_code, ended.output
    return {f"{step['area']}: {step['name']}": step["outcome"] for step in ended.json()["steps"]}


def stored(tierd: Installation) -> list[Path]:
    """Return every file of the tier, without the empty lock file."""
    return sorted(path for path in tierd.store_dir.rglob("*") if path.is_file() and path.name != "replace.lock")


def test_check_of_a_sound_installation_passes_and_leaves_no_object(tierd: Installation) -> None:
    found = outcomes(tierd)
    assert set(found.values()) == {"ok"}
    assert found["object store: conditional put"] == "ok"
    assert stored(tierd) == []
    assert not tierd.state_dir.exists()


def test_check_of_an_installation_in_use_passes_and_keeps_its_objects(copied: Installation) -> None:
    before = stored(copied)
    assert set(outcomes(copied).values()) == {"ok"}
    assert stored(copied) == before


def test_text_output_is_a_table_with_the_next_step(tierd: Installation) -> None:
    tierd.configure({"log_dirs": [{"path": "/nowhere/at/all", "owner": "kafka"}], "cluster_id": "c", "node_id": 1})
    ended = tierd.tierd("check-config", "--online")
    assert ended.exit_code == 3
    assert "unreachable" in ended.output
    assert "next: " in ended.output


def test_unreachable_store_exits_with_3(tierd: Installation) -> None:
    s3 = {"bucket": "b", "endpoint_url": "http://127.0.0.1:9", "region": "us-east-1"}
    tierd.configure({"remote": {"backend": "s3", "s3": {**s3, "access_key_id": "a", "secret_access_key": "b"}}})
    found = outcomes(tierd, exit_code=3)
    assert found["object store: reach"] == "unreachable"
    assert "object store: put" not in found


def test_retention_as_short_as_that_of_the_broker_is_a_warning_and_no_fault(tierd: Installation) -> None:
    kafka = {"kafka": {"bootstrap_servers": ["127.0.0.1:9"]}}
    tierd.configure({"leadership": kafka, "topics": {"defaults": {"retention_bytes": "from-broker"}}})

    ended = tierd.tierd("check-config")
    assert ended.exit_code == 0
    assert "warning: topics.defaults.retention_bytes: from-broker" in ended.output
    assert "next: write what the tier shall keep, such as 10TiB" in ended.output
    (warning,) = tierd.tierd("check-config", "--json").json()["warnings"]
    assert warning["key"] == "topics.defaults.retention_bytes"
    online = tierd.tierd("check-config", "--online", "--json")
    assert online.json()["warnings"] == [warning]


def test_retention_from_broker_without_a_connection_to_kafka_exits_with_2(tierd: Installation) -> None:
    tierd.configure({"topics": {"defaults": {"retention": "from-broker"}}})

    ended = tierd.tierd("check-config", "--json")

    assert ended.exit_code == 2
    (fault,) = ended.json()["faults"]
    assert fault["message"].startswith("topics.defaults.retention: from-broker needs the section leadership.kafka")


def test_lines_have_the_file_first_and_each_step_as_it_is_taken(tierd: Installation) -> None:
    ended = tierd.tierd("check-config", "--online", "--json-lines", "--step-timeout", "60")

    assert ended.exit_code == 0, ended.output
    file, *steps = ended.json_lines()
    assert (file["valid"], file["faults"], file["secrets_in_file"]) == (True, [], [])
    assert file["masked"]["remote"]["filesystem"] == {"path": str(tierd.store_dir)}
    assert [step["outcome"] for step in steps].count("begun") == len(steps) / 2
    taken = [(step["area"], step["outcome"]) for step in steps if step["outcome"] != "begun"]
    assert set(taken) == {(area, "ok") for area in ("log dirs", "disks", "metadata store", "object store")}


def test_lines_of_a_faulty_file_have_its_faults_and_no_secret(tierd: Installation) -> None:
    tierd.configure({"remote": {"backend": "s3", "s3": {"secret_access_key": "hunter2"}}, "nonsense": 1})

    ended = tierd.tierd("check-config", "--online", "--json-lines")

    assert ended.exit_code == 2
    (file,) = ended.json_lines()
    assert file["valid"] is False
    assert any("nonsense" in fault["message"] for fault in file["faults"])
    assert file["secrets_in_file"] == ["remote.s3.secret_access_key"]
    assert "hunter2" not in ended.output


def test_store_that_hangs_does_not_keep_the_other_steps(tierd: Installation, hanging_server: str) -> None:
    s3 = {"bucket": "b", "endpoint_url": hanging_server, "region": "us-east-1"}
    tierd.configure({"remote": {"backend": "s3", "s3": {**s3, "access_key_id": "a", "secret_access_key": "b"}}})

    ended = tierd.tierd("check-config", "--online", "--json-lines", "--step-timeout", "1")

    assert ended.exit_code == 3
    outcome = {f"{step['area']}: {step['name']}": step["outcome"] for step in ended.json_lines()[1:]}
    assert outcome["object store: reach"] == "unreachable"
    assert outcome["metadata store: sqlite"] == "ok"


class TestSpark:
    """Requirements of an enabled pipeline on the host."""

    def test_missing_java_is_a_fault_of_a_file_that_enables_the_pipeline(
        self, tierd: Installation, tmp_path: Path
    ) -> None:
        tierd.configure({"pipeline": {"enabled": True, "java_home": str(tmp_path / "nowhere")}})
        ended = tierd.tierd("check-config")
        assert ended.exit_code == 2
        cause, remedy = ended.stderr.splitlines()
        assert cause == f"tierd: {tmp_path}/nowhere/bin/java cannot be run: No such file or directory"
        assert remedy == "  next: correct pipeline.java_home or JAVA_HOME"
        (fault,) = tierd.tierd("check-config", "--json").json()["faults"]
        assert "pipeline.enabled" in fault["message"]

    def test_missing_java_is_a_failed_step_online(self, tierd: Installation, tmp_path: Path) -> None:
        tierd.configure({"pipeline": {"enabled": True, "java_home": str(tmp_path / "nowhere")}})
        found = outcomes(tierd, exit_code=1)
        assert {step: outcome for step, outcome in found.items() if outcome != "ok"} == {"pipeline: Spark": "failed"}

    def test_host_with_all_requirements_passes(self, tierd: Installation) -> None:
        tierd.configure({"pipeline": {"enabled": True}})
        ended = tierd.tierd("check-config")
        assert ended.exit_code == 0, ended.output
        assert outcomes(tierd)["pipeline: Spark"] == "ok"

    def test_java_is_not_checked_if_the_pipeline_is_off(self, tierd: Installation, tmp_path: Path) -> None:
        tierd.configure({"pipeline": {"java_home": str(tmp_path / "nowhere")}})
        assert tierd.tierd("check-config").exit_code == 0
        assert "pipeline: Spark" not in outcomes(tierd)

    @pytest.mark.parametrize(
        ("pipeline", "where"),
        [
            ({"spark_conf": {"spark.authenticate": "false"}}, "pipeline.spark_conf.spark.authenticate: must be true"),
            ({"master": "spark://host:7077"}, "pipeline.authenticate_secret: is missing"),
        ],
    )
    def test_session_open_to_other_users_is_a_fault_for_check_config_and_daemon(
        self, tierd: Installation, pipeline: dict[str, object], where: str
    ) -> None:
        tierd.configure({"pipeline": {"enabled": True, **pipeline}})
        ended = tierd.tierd("check-config")
        assert (ended.exit_code, where in ended.stderr) == (2, True)
        (fault,) = tierd.tierd("check-config", "--json").json()["faults"]
        assert where in fault["message"]
        assert run_tierd("run", "--config", str(tierd.config_file)).exit_code == 2

    def test_daemon_without_java_does_not_start_and_names_the_cause(
        self, tierd: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tierd.configure({"pipeline": {"enabled": True}})
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
        ended = run_tierd("run", "--config", str(tierd.config_file))
        assert ended.exit_code == 2
        said = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
        assert said == [
            f"tierd: {tmp_path}/nowhere/bin/java cannot be run: No such file or directory",
            "  next: correct pipeline.java_home or JAVA_HOME",
        ]


def s3_remote(service: S3Service, bucket: str, **more: object) -> dict[str, object]:
    settings = {
        "bucket": bucket,
        "endpoint_url": service.endpoint_url,
        "region": service.region,
        "access_key_id": service.access_key_id,
        "secret_access_key": service.secret_access_key,
        "path_style": True,
        "part_size": "5MiB",
    }
    return {"backend": "s3", "key_prefix": "tier", "s3": settings | more}


@pytest.mark.service("s3")
def test_check_of_an_s3_store_passes_and_leaves_no_object(
    tierd: Installation, s3_service: S3Service, s3_admin: S3Admin, s3_bucket: str
) -> None:
    tierd.configure({"remote": s3_remote(s3_service, s3_bucket)})
    assert set(outcomes(tierd).values()) == {"ok"}
    assert s3_admin.keys(s3_bucket) == []
    assert s3_admin.unfinished_uploads(s3_bucket) == []


@pytest.mark.service("s3")
def test_wrong_credentials_and_missing_buckets_exit_with_1(
    tierd: Installation, s3_service: S3Service, s3_bucket: str
) -> None:
    tierd.configure({"remote": s3_remote(s3_service, s3_bucket, secret_access_key="wrong")})
    assert outcomes(tierd, exit_code=1)["object store: reach"] == "failed"
    tierd.configure({"remote": s3_remote(s3_service, "no-such-bucket")})
    assert outcomes(tierd, exit_code=1)["object store: reach"] == "failed"


@pytest.mark.service("s3")
def test_printed_policy_is_sufficient_for_the_check(
    tierd: Installation, log_dir: LogDirWriter, s3_service: S3Service, s3_admin: S3Admin, s3_bucket: str
) -> None:
    access_key, secret_key = s3_service.services.new_s3_user()
    keys = {"access_key_id": access_key, "secret_access_key": secret_key}
    tierd.configure({"remote": s3_remote(s3_service, s3_bucket, **keys)})
    assert outcomes(tierd, exit_code=1)["object store: reach"] == "failed"
    printed = tierd.tierd("check-config", "--policy")
    assert printed.exit_code == 0, printed.output
    s3_admin.allow(s3_bucket, access_key, printed.json())
    assert set(outcomes(tierd).values()) == {"ok"}
    copied = tierd.tierd("copy", "--once")
    assert copied.exit_code == 0, copied.output
    assert len(tierd.segments("orders-0")) == 3
    assert [record["offset"] for record in tierd.cat("orders-0")][:4] == [0, 1, 2, 3]


@pytest.mark.service("gcs")
def test_check_of_a_gcs_store_passes(tierd: Installation, gcs_service: GcsService, gcs_bucket: str) -> None:
    gcs = {"bucket": gcs_bucket, "endpoint_url": gcs_service.endpoint_url}
    tierd.configure({"remote": {"backend": "gcs", "gcs": gcs}})
    assert set(outcomes(tierd).values()) == {"ok"}


@pytest.mark.service("azure")
def test_check_of_an_azure_store_passes(tierd: Installation, azure_service: AzureService, azure_container: str) -> None:
    azure = {
        "container": azure_container,
        "account": azure_service.account,
        "account_key": azure_service.account_key,
        "endpoint_url": azure_service.endpoint_url,
    }
    tierd.configure({"remote": {"backend": "azure", "azure": azure}})
    assert set(outcomes(tierd).values()) == {"ok"}


def test_check_reports_the_kind_of_hold_of_a_log_dir(tierd: Installation, tmp_path: Path) -> None:
    tierd.configure({"hold": {"dir": "/dev/shm/tierd-hold-check"}})
    ended = tierd.tierd("check-config", "--online", "--json")
    seen = next(step["detail"] for step in ended.json()["steps"] if step["area"] == "log dirs")
    assert "held by hard links" in seen or "held by open files" in seen
