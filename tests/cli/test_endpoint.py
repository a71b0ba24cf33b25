"""tierd endpoint: the quarantine without a daemon, and hashes of passwords."""

import json

import pytest

from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd
from tests.security.canary import SECRET, reveals
from tierd.config import ScramVerifier

ENDPOINT = {
    "kafka": {
        "listeners": [{"name": "RESTORED", "listen": "127.0.0.1:9192"}],
        "quarantine": {"listeners": ["RESTORED"], "principals": ["User:app-.*"]},
    }
}
HELD = {"listeners": ["RESTORED"], "principals": ["User:app-.*"]}


def test_quarantine_is_released_and_begun_again_without_a_daemon(tierd: Installation) -> None:
    tierd.configure(ENDPOINT)

    assert tierd.tierd("endpoint", "release", "--json").json() == HELD
    release = json.loads((tierd.state_dir / "endpoint-quarantine.json").read_text())
    assert release["listeners"] == ["RESTORED"]
    assert release["by"]
    assert tierd.tierd("endpoint", "release").stdout == "released: no clients\n"
    assert tierd.tierd("endpoint", "hold").stdout == (
        "held back: clients of listener RESTORED\nheld back: principals User:app-.*\n"
    )
    assert tierd.tierd("endpoint", "release", "--json").json() == HELD


def test_hashes_of_a_password_go_into_the_configuration(tierd: Installation, warm: WarmTierd) -> None:
    ended = warm.run("endpoint", "hash-password", "--iterations", "4096", given=f"{SECRET}\n")
    assert ended.exit_code == 0, ended.output
    hashes = dict(line.split(": ", 1) for line in ended.stdout.splitlines())

    assert not reveals(ended.output)
    for key, hash_name in (("scram_sha_256", "sha256"), ("scram_sha_512", "sha512")):
        known = ScramVerifier.parse(hashes[key], hash_name)
        assert ScramVerifier.of_password(SECRET, hash_name, salt=known.salt, iterations=4096) == known
    tierd.configure({"kafka": {"sasl": {"users": [{"name": "etl", **hashes}]}}})
    assert tierd.tierd("check-config").exit_code == 0


def test_hashes_are_printed_for_programs(warm: WarmTierd) -> None:
    ended = warm.run("endpoint", "hash-password", "--json", given="pencil")

    assert list(ended.json()) == ["scram_sha_256", "scram_sha_512"]


@pytest.mark.parametrize("given", ["", "\n", "x" * 2000])
def test_password_that_is_none_is_refused(warm: WarmTierd, given: str) -> None:
    assert warm.run("endpoint", "hash-password", given=given).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["release", "x"], ["hash-password", "--iterations", "1"]], ids=" ".join
)
def test_usage_mistake_exits_with_2(warm: WarmTierd, arguments: list[str]) -> None:
    assert warm.run("endpoint", *arguments).exit_code == 2
