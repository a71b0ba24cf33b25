"""``tierd endpoint hold`` and ``tierd endpoint release``: the clients of the read endpoint that are held back."""

from tierd.app import hold_endpoint, release_endpoint, run_in_loop
from tierd.cli.asking import daemon_state_dir
from tierd.cli.erasures import user_and_host
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, SocketOption
from tierd.cli.output.printing import print_json, print_line
from tierd.cli.session import begin
from tierd.serve import QuarantineAnswer


def hold(config: ConfigOption = DEFAULT_CONFIG, socket: SocketOption = None, as_json: JsonOption = False) -> None:
    """Hold the clients of kafka.quarantine back again, before a restore: their fetches and groups have to wait.

    Without a daemon, this command writes it down for the next one.

    Example: tierd endpoint hold
    """
    state_dir = daemon_state_dir(config, socket)
    answer = run_in_loop(
        hold_endpoint(state_dir, lambda: begin(config, secrets=False).kafka.quarantine, by=user_and_host())
    )
    _print(answer, verb="held back", as_json=as_json)


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
    _print(answer, verb="released", as_json=as_json)


def _print(answer: QuarantineAnswer, *, verb: str, as_json: bool) -> None:
    """Print the clients that a verb released, or holds back."""
    if as_json:
        print_json(answer.to_json())
        return
    for name in answer.listeners:
        print_line(f"{verb}: clients of listener {name}")
    for pattern in answer.principals:
        print_line(f"{verb}: principals {pattern}")
    if not (answer.listeners or answer.principals):
        print_line(f"{verb}: no clients")
