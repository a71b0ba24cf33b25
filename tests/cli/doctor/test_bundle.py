"""The bundle: what is in it, who may read it, and no secret anywhere."""

import json
import os
import stat
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.doctor.doctor_facts import LOG, NOW_MS, facts, partition, status
from tests.config.secrets_everywhere import SECRETS, file_full_of_secrets
from tests.scenarios.command import run_tierd
from tierd.cli.doctor.bundle import bundle_files, known_secrets, write_bundle
from tierd.cli.doctor.report import diagnose
from tierd.errors import RefusedError, StateDirError
from tierd.masking import Masking

FILES = {"findings.json", "config.json", "status.json", "versions.json", "limits.json", "page.txt", "log.txt"}


def unpacked(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        found = {entry.name: archive.extractfile(entry) for entry in archive}
        return {Path(name).name: file.read().decode() for name, file in found.items() if file is not None}


class TestFiles:
    """The contents."""

    def test_bundle_has_findings_configuration_status_versions_limits_and_log(self) -> None:
        told = facts(log=replace(LOG, lines=("one line",)))

        files = bundle_files(told, diagnose(told), Masking())

        assert set(files) == FILES
        assert json.loads(files["status.json"])["partitions"][0]["partition"] == "orders-0"
        assert json.loads(files["findings.json"])["ok"] is True
        assert json.loads(files["versions.json"])["daemon"] == {"version": "1.2.3", "commit": "a" * 40}
        assert json.loads(files["limits.json"])["process"]["open_files_limit"] == 65_536
        assert files["log.txt"] == b"one line\n"

    def test_secrets_of_the_file_are_masked_wherever_they_are(self, tmp_path: Path) -> None:
        file, env = file_full_of_secrets(tmp_path)
        secrets = [each for each in SECRETS if not each.startswith(("comment", "default"))]
        told = facts(
            status=status(*(partition(f"orders-{n}", last_error=f"refused {each}") for n, each in enumerate(secrets))),
            log=replace(LOG, lines=tuple(f'{{"event": "plain {each}"}}' for each in secrets)),
        )

        files = bundle_files(told, diagnose(told), known_secrets(file, env))

        assert b"refused" in files["status.json"]
        assert [name for name, content in files.items() if b"3cr3t" in content] == []

    def test_control_characters_of_strangers_are_escapes(self) -> None:
        told = facts(status=status(partition(last_error="\x1b[2Jnothing\nwrong")))

        files = bundle_files(told, diagnose(told), Masking())

        assert b"\\x1b[2Jnothing\\nwrong" in files["page.txt"]
        assert [name for name, content in files.items() if b"\x1b" in content] == []

    def test_file_that_cannot_be_read_has_no_known_secrets(self, tmp_path: Path) -> None:
        assert known_secrets(tmp_path / "nothing", {}).text("plain") == "plain"


class TestWriting:
    """The file on disk."""

    def test_bundle_is_for_its_owner_alone_whatever_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            write_bundle(tmp_path / "b.tar.gz", {"a.txt": b"text"}, now_ms=NOW_MS)
        finally:
            os.umask(before)

        assert stat.S_IMODE((tmp_path / "b.tar.gz").stat().st_mode) == 0o600
        assert unpacked(tmp_path / "b.tar.gz") == {"a.txt": "text"}

    @pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
    def test_bundle_does_not_replace_an_existing_file_or_link(self, kind: str, tmp_path: Path) -> None:
        bundle, other = tmp_path / "b.tar.gz", tmp_path / "other"
        if kind != "dangling link":
            other.write_text("mine")
        (bundle.write_text("mine") if kind == "file" else bundle.symlink_to(other))

        with pytest.raises(RefusedError, match="exists already"):
            write_bundle(bundle, {"a.txt": b"text"}, now_ms=NOW_MS)

        assert other.exists() == (kind != "dangling link")
        assert kind == "dangling link" or bundle.read_text() == "mine"

    def test_directory_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(StateDirError, match="No such file"):
            write_bundle(tmp_path / "nowhere" / "b.tar.gz", {}, now_ms=NOW_MS)


class TestCommand:
    """The whole command, with a configuration that has a secret in every place."""

    def test_bundle_of_a_configuration_full_of_secrets_has_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, env = file_full_of_secrets(tmp_path)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        log = tmp_path / "log"
        log.write_text("\n".join(each for each in SECRETS if not each.startswith(("comment", "default"))))
        bundle = tmp_path / "b.tar.gz"

        ended = run_tierd("doctor", "--config", str(file), "--log", str(log), "--bundle", str(bundle))

        assert ended.exit_code == 1, ended.output
        files = unpacked(bundle)
        assert set(files) == FILES
        assert json.loads(files["config.json"])["remote"]["s3"]["bucket"] == "my-bucket"
        assert "3cr3t" not in ended.output
        assert [name for name, content in files.items() if "3cr3t" in content] == []
        assert stat.S_IMODE(bundle.stat().st_mode) == 0o600

    def test_file_that_exists_is_refused_before_anything_is_examined(self, tmp_path: Path) -> None:
        bundle = tmp_path / "b.tar.gz"
        bundle.write_text("mine")

        ended = run_tierd("doctor", "--config", str(tmp_path / "nothing"), "--bundle", str(bundle))

        assert (ended.exit_code, ended.stdout) == (4, "")
        assert bundle.read_text() == "mine"

    def test_findings_are_printed_also_if_the_bundle_cannot_be_written(self, tmp_path: Path) -> None:
        bundle = tmp_path / "nowhere" / "b.tar.gz"

        ended = run_tierd("doctor", "--config", str(tmp_path / "nothing"), "--json", "--bundle", str(bundle))

        assert ended.exit_code == 3
        assert ended.json()["findings"]
        assert ended.json()["bundle"] is None
        assert "No such file" in ended.stderr

    def test_name_of_another_kind_is_a_usage_error(self, tmp_path: Path) -> None:
        assert run_tierd("doctor", "--bundle", str(tmp_path / "b.zip")).exit_code == 2
