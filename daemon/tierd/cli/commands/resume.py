"""``tierd resume``: live control of the running daemon."""

from tierd.cli.control import tell_daemon
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionsArgument


def resume(
    partitions: PartitionsArgument = None, config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False
) -> None:
    """Copy paused partitions again, all of them when none is named.

    Example: tierd resume
    """
    tell_daemon("resume", partitions or [], config=config, as_json=as_json)
