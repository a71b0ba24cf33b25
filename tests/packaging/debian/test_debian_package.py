"""Debian package on a clean Debian: an older one is installed, upgraded, used, removed and purged, in this order."""

import json
import re
import signal
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.packaging.bill import LICENCES, SBOM, components_of, licences_of
from tests.packaging.debian.environment import site_packages
from tests.packaging.debian.life import CHANGED_LINE, NEW, OLD, PackageLife
from tests.packaging.debian.package import SCRIPTS, PackageTree
from tests.packaging.dist import git
from tests.packaging.lock import name_of
from tests.services.fixtures import installed
from tests.services.waiting import wait_until
from tierd.cli.main import VERBS

pytestmark = pytest.mark.service("debian")


class TestInstallation:
    """First installation and upgrade."""

    def test_first_installation_starts_nothing_and_says_what_comes_next(self, life: PackageLife) -> None:
        assert "edit /etc/tierd/tierd.yaml, run 'tierd check-config'" in life.installed
        assert life.journal()[0].startswith("stop")

    def test_upgrade_stops_the_old_daemon_before_and_starts_the_new_one_after_the_files_change(
        self, life: PackageLife
    ) -> None:
        assert life.journal() == [f"stop {OLD}", f"start {NEW}"]

    def test_upgrade_keeps_the_edited_configuration(self, life: PackageLife) -> None:
        folder = life.root.path / "etc/tierd"

        assert (folder / "tierd.yaml").read_text() == life.before_upgrade
        assert CHANGED_LINE in life.before_upgrade
        assert CHANGED_LINE not in (folder / "tierd.yaml.dpkg-dist").read_text()

    def test_broker_can_read_the_configuration_and_others_cannot(self, life: PackageLife) -> None:
        names = life.root.checked("stat", "--format", "%U:%G %a", "/etc/tierd", "/etc/tierd/tierd.yaml")

        assert names.splitlines() == ["root:kafka 750", "root:kafka 640"]

    def test_maintainer_scripts_change_nothing_when_they_run_again(self, life: PackageLife) -> None:
        state = life.root.checked("sh", "-c", "ls -lR /etc/tierd /etc/systemd")
        for action in ("configure", "abort-upgrade"):
            script = "/var/lib/dpkg/info/tierd.postinst"
            life.root.checked(script, action, NEW, DPKG_MAINTSCRIPT_PACKAGE="tierd")

        assert life.root.checked("sh", "-c", "ls -lR /etc/tierd /etc/systemd") == state
        assert len(life.journal()) == 2


class TestUse:
    """Use of what is installed."""

    def test_version_names_release_commit_and_time_of_the_build(self, life: PackageLife) -> None:
        printed = life.root.checked("tierd", "--version", user="kafka")

        assert re.fullmatch(
            rf"tierd 0\.1\.0 \(commit {git('rev-parse', 'HEAD')}(-dirty)?, built 20\S+\+00:00\)\n", printed
        )

    def test_configuration_of_the_package_is_refused_until_it_names_a_store(self, life: PackageLife) -> None:
        ended = life.root.run("tierd", "check-config", "--config", "/etc/tierd/tierd.yaml.dpkg-dist")

        assert ended.returncode == 2
        assert "remote" in ended.stdout

    def test_edited_configuration_is_accepted(self, life: PackageLife) -> None:
        life.root.checked("tierd", "check-config", user="kafka")

    def test_daemon_of_the_unit_copies_as_the_user_of_the_unit(
        self, life: PackageLife, golden: Path, tmp_path: Path
    ) -> None:
        unit = (life.root.path / "lib/systemd/system/tierd.service").read_text()
        (command,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
        (user,) = re.findall(r"^User=(.+)$", unit, re.MULTILINE)
        subprocess.run(
            ["cp", "-r", golden / "kafka-4.3.1/clean/logdir", life.root.path / "var/lib/kafka/data"], check=True
        )
        for folder in ("/var/lib/kafka", "/var/lib/tierd", "/srv/tier"):
            life.root.checked("sh", "-c", f"mkdir -p {folder} && chown -R {user}: {folder}")

        log = tmp_path / "log"
        daemon = life.root.start(*command.split(), user=user, log=log)
        try:
            wait_until(
                lambda: any((life.root.path / "srv/tier").rglob("*.log")),
                what="a segment in the tier",
                deadline_s=60,
                last_seen=log.read_text,
                interval_s=0.2,
            )
            status = json.loads(life.root.checked("tierd", "status", "--json", user=user).splitlines()[0])
            assert status
        finally:
            life.root.signal(daemon, signal.SIGTERM)
            assert daemon.wait(60) == 0, log.read_text()

    def test_every_verb_has_a_man_page_that_man_formats_without_a_warning(self, life: PackageLife) -> None:
        each = "for page in /usr/share/man/man1/tierd*.1.gz; do man --warnings --local-file -P cat $page || exit; done"
        shown = life.root.checked("sh", "-c", f"{{ {each}; }} 2>&1 > /dev/null")
        pages = {path.name for path in (life.root.path / "usr/share/man/man1").glob("tierd*")}

        assert shown == ""
        assert {f"tierd-{'-'.join(verb.words)}.1.gz" for verb in VERBS if not verb.hidden} < pages
        assert "tierd status [OPTIONS]" in life.root.checked("man", "-P", "cat", "tierd-status")

    def test_bash_completes_verbs(self, life: PackageLife) -> None:
        script = """
        . /usr/share/bash-completion/bash_completion; _completion_loader tierd
        COMP_LINE='tierd check' COMP_WORDS=(tierd check) COMP_CWORD=1 COMP_POINT=11
        $(complete -p tierd | sed 's/.*-F \\([^ ]*\\) .*/\\1/') tierd check tierd; echo "${COMPREPLY[*]}"
        """
        assert life.root.checked("bash", "-c", script).split() == ["check-config"]

    def test_fish_completes_verbs(self, life: PackageLife) -> None:
        assert life.root.checked("fish", "-c", "complete -C 'tierd check'").split()[0] == "check-config"

    def test_zsh_finds_its_completion(self, life: PackageLife) -> None:
        script = "autoload -U compinit && compinit -u -d /tmp/dump && echo $_comps[tierd] && autoload +X _tierd"
        found = life.root.checked("zsh", "-f", "-c", f"{script} && which _tierd", HOME="/tmp")

        assert found.splitlines()[0] in {"_tierd", "_tierd_completion"}
        assert "_TIERD_COMPLETE=complete_zsh" in found

    def test_libraries_of_all_packages_are_there(self, life: PackageLife) -> None:
        script = "find /usr/lib/tierd -name '*.so*' -type f -exec ldd {} + | grep -E '^/|not found'"
        shown = life.root.run("sh", "-c", script).stdout
        lacking = re.findall(r"^\S*/([^/]+)\.cpython-\S+:\n\s+(\S+) => not found", shown, re.MULTILINE)

        # numba has three ways to run in parallel, and takes the one that needs no library if these are not there.
        assert sorted(lacking) == [("omppool", "libgomp.so.1.0.0"), ("tbbpool", "libtbb.so.12")]
        assert shown.count("not found") == len(lacking)

    def test_every_module_of_the_daemon_loads(self, life: PackageLife) -> None:
        stores = "tierd.app.run, gcloud.aio.storage, asyncpg, redis.asyncio, aiomqtt, rocksdict, pyarrow, numba"
        life.root.checked("/usr/lib/tierd/bin/python3", "-W", "error", "-c", f"import {stores}", user="kafka")

    def test_operator_can_add_packages_that_an_upgrade_keeps(self, life: PackageLife) -> None:
        folder = life.root.path / "usr/local/lib/tierd/packages"
        folder.mkdir(parents=True)
        (folder / "acme.py").write_text("ANSWER = 42\n")

        assert life.root.checked("/usr/lib/tierd/bin/python3", "-c", "import acme; print(acme.ANSWER)") == "42\n"

    def test_use_as_root_leaves_no_file_behind_and_changes_none(self, life: PackageLife) -> None:
        owned = set(life.root.checked("dpkg", "--listfiles", "tierd").splitlines())

        assert life.files() <= owned
        assert [
            line for line in life.root.run("dpkg", "--verify", "tierd").stdout.splitlines() if " c " not in line
        ] == []


class TestContents:
    """Contents of the package."""

    def test_nothing_names_the_place_of_the_build(self, tree: PackageTree) -> None:
        command = ["grep", "-rlF", "-e", str(tree.root.parent), "-e", "/debian/making-", str(tree.root)]

        assert subprocess.run(command, check=False, capture_output=True, text=True).stdout == ""

    def test_sbom_is_valid_and_has_each_installed_package_with_version_and_licence(self, tree: PackageTree) -> None:
        text = (tree.documents / SBOM).read_text()
        bill = json.loads(text)
        components = {(name_of(each["name"]), each["version"]): each for each in components_of(bill)}
        place = str(site_packages(tree.environment))

        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        assert set(components) == {(name_of(each.name), each.version) for each in distributions(path=[place])}
        assert [name for name, each in components.items() if not licences_of(each)] == []

    def test_licence_list_has_each_installed_package_with_its_licence_files(self, tree: PackageTree) -> None:
        text = (tree.documents / LICENCES).read_text()
        listed = re.findall(r"^(\S+) (\S+): (?!not declared)\S.*$", text, re.MULTILINE)
        packages = site_packages(tree.environment)
        files = re.findall(r"^    (\S.*)$", text, re.MULTILINE)

        assert {(name_of(name), version) for name, version in listed} == {
            (name_of(each.name), each.version) for each in distributions(path=[str(packages)])
        }
        assert len(files) > len(listed) / 2
        assert [name for name in files if not (packages / name).is_file()] == []

    def test_systemd_accepts_the_unit(self, life: PackageLife) -> None:
        command = [installed("systemd-analyze"), "verify", "--man=no", f"--root={life.root.path}", "tierd.service"]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        said = [line for line in ended.stderr.splitlines() if "tierd" in line]

        # The root has no other unit: with everything in order, that is all there is to say.
        assert [line for line in said if not re.search(r"Unit \S+ not found", line)] == []

    def test_lintian_finds_no_error_in_what_is_not_from_other_packages(self, own_package: Path) -> None:
        command = [installed("lintian"), "--allow-root", "--display-level", ">=error", str(own_package)]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)

        assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


class TestRemoval:
    """Removal and purge, the end of this life."""

    def test_removal_stops_the_daemon_and_keeps_configuration_and_state(self, life: PackageLife) -> None:
        life.root.checked("sh", "-c", "echo rows > /var/lib/tierd/metadata.db")
        life.root.checked("dpkg", "--remove", "tierd")

        assert life.journal()[2:] == [f"stop {NEW}"]
        assert not (life.root.path / "usr/lib/tierd").exists()
        assert (life.root.path / "etc/tierd/tierd.yaml").read_text() == life.before_upgrade
        assert (life.root.path / "var/lib/tierd/metadata.db").exists()

    def test_purge_takes_the_configuration_and_names_the_data_that_stays(self, life: PackageLife) -> None:
        (life.root.path / "etc/tierd/tier-key").write_text("the only copy\n")
        printed = life.root.checked("dpkg", "--purge", "tierd")

        assert [path.name for path in (life.root.path / "etc/tierd").iterdir()] == ["tier-key"]
        assert (life.root.path / "var/lib/tierd/metadata.db").read_text() == "rows\n"
        for folder in ("/var/lib/tierd", "/etc/tierd", "/usr/local/lib/tierd"):
            assert f"{folder} is not empty and stays" in printed

    def test_purge_leaves_nothing_of_the_package(self, life: PackageLife) -> None:
        left = life.root.checked("find", "/", "-xdev", "-name", "*tierd*", "-not", "-path", "/proc/*").split()
        own = (
            "/var/lib/tierd",
            "/etc/tierd",
            "/usr/local/lib/tierd",
            "/srv",
            "/var/lib/kafka",
            "/tmp",
            "/var/cache/man",
        )

        assert [path for path in left if not path.startswith(own)] == []
        assert life.root.run("dpkg-query", "--status", "tierd").returncode != 0

    def test_scripts_are_shell_that_sh_accepts(self) -> None:
        folder = Path(__file__).parents[3] / "systemd" / "debian"
        for name in SCRIPTS:
            subprocess.run(["sh", "-n", folder / name], check=True)
