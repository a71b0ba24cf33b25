"""``tierd endpoint hold``: hold clients of the read endpoint back."""

from tierd.app import hold_endpoint, run_in_loop
from tierd.cli.asking import daemon_state_dir
from tierd.cli.erasures import user_and_host
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, SocketOption
from tierd.cli.quarantine_output import print_clients
from tierd.cli.session import begin


def hold(config: ConfigOption = DEFAULT_CONFIG, socket: SocketOption = None, as_json: JsonOption = False) -> None:
    """Hold the clients of kafka.quarantine back again, before a restore: their fetches and groups have to wait.

    Without a daemon, this command writes it down for the next one.

    Example: tierd endpoint hold
    """
    state_dir = daemon_state_dir(config, socket)
    answer = run_in_loop(
        hold_endpoint(state_dir, lambda: begin(config, secrets=False).kafka.quarantine, by=user_and_host())
    )
    print_clients(answer, verb="held back", as_json=as_json)
