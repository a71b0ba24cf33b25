"""``tierd sync``: live control of the running daemon."""

from tierd.cli.control import tell_daemon
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, PartitionsArgument


def sync(
    partitions: PartitionsArgument = None, config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False
) -> None:
    """Look at partitions now instead of at the next event; quarantined ones are tried again at once.

    Example: tierd sync orders-0
    """
    tell_daemon("sync", partitions or [], config=config, as_json=as_json)
