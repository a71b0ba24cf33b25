"""The read endpoint in check-config --online: certificates and addresses, seen without a bound port."""

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.security.canary import SECRET, reveals
from tests.services.certificates import Authority
from tierd.app.checks.check_endpoint import check_endpoint
from tierd.app.checks.checklist import Checklist, CheckStep
from tierd.clock import SystemClock
from tierd.config import KafkaEndpointSettings

DAYS_LATER_MS = 10 * 86_400_000


async def checked(section: Mapping[str, object], *, now_ms: int | None = None) -> dict[str, CheckStep]:
    checklist = Checklist()
    settings = KafkaEndpointSettings.model_validate(section)
    await check_endpoint(settings, checklist, clock=FakeClock(now_ms=now_ms or SystemClock().now_ms()))
    assert {step.area for step in checklist.steps} <= {"read endpoint"}
    return {step.name: step for step in checklist.steps}


def with_tls(tmp_path: Path, **more: object) -> dict[str, object]:
    issued = Authority(tmp_path / "pki", "authority").issue("server", hosts=("127.0.0.1",))
    tls = {"certificate_file": issued.cert_file, "key_file": issued.key_file, **more}
    return {"listeners": ["SSL://127.0.0.1:9192"], "tls": tls}


async def test_sound_endpoint_has_nothing_to_do(tmp_path: Path) -> None:
    steps = await checked(with_tls(tmp_path))

    assert list(steps) == ["certificate", "listener SSL", "address 127.0.0.1"]
    assert {step.outcome for step in steps.values()} == {"ok"}
    assert steps["certificate"].detail == "fits its key, and is valid for 1 days; certificates of clients: none"


async def test_port_that_a_daemon_listens_at_is_no_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        steps = await checked({"listeners": [f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"]})

    assert steps["listener PLAINTEXT"].outcome == "ok"


async def test_certificate_that_has_ended_is_a_fault(tmp_path: Path) -> None:
    steps = await checked(with_tls(tmp_path), now_ms=SystemClock().now_ms() + DAYS_LATER_MS)

    assert steps["certificate"].outcome == "failed"
    assert "ended at" in steps["certificate"].detail
    assert steps["certificate"].next_step


async def test_key_that_stays_closed_is_a_fault_without_its_password(tmp_path: Path) -> None:
    closed = Authority(tmp_path / "pki", "authority").issue("closed", password="another")
    tls = {"certificate_file": closed.cert_file, "key_file": closed.key_file, "key_password": SECRET}
    steps = await checked({"listeners": ["SSL://127.0.0.1:9192"], "tls": tls})

    assert steps["certificate"].outcome == "failed"
    assert not reveals(str(steps))


async def test_missing_authority_of_clients_is_a_fault(tmp_path: Path) -> None:
    section = with_tls(tmp_path, client_ca_file="/nowhere/ca.pem", client_certificates="required")

    assert "/nowhere/ca.pem" in (await checked(section))["certificate"].detail


async def test_address_of_another_host_is_a_fault() -> None:
    steps = await checked({"listeners": [{"listen": "192.0.2.1:9192"}], "allow_plaintext": True})

    assert steps["listener PLAINTEXT"].outcome == "failed"
    assert "192.0.2.1 is no address of this host" in steps["listener PLAINTEXT"].detail


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a" * 70])
async def test_names_that_clients_could_not_look_up_are_faults(name: str) -> None:
    steps = await checked(
        {
            "listeners": [{"listen": "127.0.0.1:9192", "advertised": f"{name}:9192"}],
            "peers": [{"node_id": 2, "address": "tierd-2.invalid:9192"}],
        }
    )

    assert steps[f"address {name}"].outcome == "failed"
    assert steps[f"address {name}"].detail.startswith(f"{name} has no address: ")
    assert steps["address tierd-2.invalid"].outcome == "failed"
