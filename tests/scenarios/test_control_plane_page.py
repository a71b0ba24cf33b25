"""docs/control-plane.md: a broker and two daemons, started and asked by the commands that the page prints."""

import re
from pathlib import Path

import pytest

from tests.scenarios.printed_commands import printed_commands, run_commands
from tests.services.mqtt import MqttService
from tests.services.ports import free_port

_PAGE = Path(__file__).parents[2] / "docs" / "control-plane.md"


@pytest.mark.service("mqtt")
@pytest.mark.usefixtures("mqtt_service")  # skips where no Mosquitto is installed
def test_commands_of_the_page_start_two_daemons_that_know_of_each_other(tmp_path: Path) -> None:
    script = printed_commands(_PAGE, "Try it").replace("/tmp/tierd-control", str(tmp_path / "control"))
    script = script.replace("1899", str(free_port())).replace("127.0.0.1:941$node", "127.0.0.1:0")
    output = run_commands(script)
    assert re.search(r"^1 +online", output, flags=re.MULTILINE)
    assert re.search(r"^2 \(this\) +online", output, flags=re.MULTILINE)
    assert re.search(r"^orders-0 +leader +\w+ +1 +15499", output, flags=re.MULTILINE)
    assert "node 1: ready: yes" in output
    assert output.count("node 1: names: orders-0") == 3


def test_commands_of_the_page_make_certificates_that_the_authority_has_signed(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    script = printed_commands(_PAGE, "Set it up").replace("/tmp/tierd-mqtt-certs", str(folder))
    names = " ".join(f"{name}.pem" for name in ("1", "2", "mqtt.example.com"))
    output = run_commands(f"{script}\ncd {folder} && openssl verify -CAfile ca.pem {names}")
    assert output.count(": OK") == 3


_TWIN = """
cluster_id: twins
node_id: 1
state_dir: ./{name}/state
log_dirs: [{{path: ./{name}/logs, owner: tierd}}]
remote: {{backend: filesystem, filesystem: {{path: ./{name}/tier}}}}
http: {{listen: "127.0.0.1:0"}}
control: {{mqtt: {{address: "{address}"}}}}
"""


@pytest.mark.service("mqtt")
@pytest.mark.spec("push-replication 100")
def test_daemon_whose_identity_a_second_one_takes_ends_with_exit_code_4(
    tmp_path: Path, mqtt_service: MqttService
) -> None:
    script = f"cd {tmp_path}\n"
    for name in ("first", "second"):
        (tmp_path / name / "logs").mkdir(parents=True)
        (tmp_path / name / "tier").mkdir()
        (tmp_path / f"{name}.yaml").write_text(_TWIN.format(name=name, address=mqtt_service.address))
    script += """
    tierd run --config first.yaml 2> first.log & first=$!
    until grep -q control_plane_connected first.log; do sleep 0.2; done
    tierd run --config second.yaml 2> second.log & second=$!
    code=0; wait $first || code=$?
    kill $second; wait $second
    echo "exit code $code"
    """
    assert run_commands(script).endswith("exit code 4\n")
    assert "with the identity of this daemon" in (tmp_path / "first.log").read_text()
