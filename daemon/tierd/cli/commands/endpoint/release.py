"""``tierd endpoint release``: let the clients of the read endpoint go that are held back."""

from tierd.app import release_endpoint, run_in_loop
from tierd.cli.asking import daemon_state_dir
from tierd.cli.erasures import user_and_host
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, SocketOption
from tierd.cli.quarantine_output import print_clients
from tierd.cli.session import begin


def release(config: ConfigOption = DEFAULT_CONFIG, socket: SocketOption = None, as_json: JsonOption = False) -> None:
    """Let the clients go that kafka.quarantine holds back, once groups are set after a restore.

    The release holds over restarts, until tierd endpoint hold. Without a daemon, this command writes it down for the
    next one.

    Example: tierd endpoint release
    """
    state_dir = daemon_state_dir(config, socket)
    answer = run_in_loop(
        release_endpoint(state_dir, lambda: begin(config, secrets=False).kafka.quarantine, by=user_and_host())
    )
    print_clients(answer, verb="released", as_json=as_json)
