"""``tierd peers``: the daemons of the cluster, as they announced themselves over MQTT."""

from datetime import UTC, datetime

from tierd.cli.asking import ask_daemon
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonObjectOption, JsonOption, SocketOption
from tierd.cli.output.display import print_group
from tierd.cli.output.json_lists import print_list
from tierd.cli.output.layout import Cell, plain_table, plain_text
from tierd.serve import PEERS, PeersRequest, PeerSummary


def peers(
    config: ConfigOption = DEFAULT_CONFIG,
    socket: SocketOption = None,
    as_json: JsonOption = False,
    as_object: JsonObjectOption = False,
) -> None:
    """List the daemons that announced themselves over MQTT, this one included.

    A daemon that was lost is listed as online until the MQTT broker notices.

    Example: tierd peers
    """
    answer = ask_daemon(config, socket, PEERS, PeersRequest())
    if as_json or as_object:
        print_list([peer.to_json() for peer in answer.peers], as_object=as_object)
        return
    problem = [plain_text(f"the list may be out of date: {answer.problem}", "red")] if answer.problem else []
    table = plain_table(("node", "state", "version", "endpoint", "started"), ("leads",), "features")
    for peer in answer.peers:
        table.add_row(*_cells(peer))
    print_group(*problem, table)


def _cells(peer: PeerSummary) -> list[Cell]:
    started = datetime.fromtimestamp(peer.started_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [
        f"{peer.node_id} (this)" if peer.is_this else str(peer.node_id),
        plain_text("online", "green") if peer.online else plain_text("offline", "red"),
        peer.version,
        peer.endpoint,
        started,
        str(peer.led_partitions),
        ", ".join(peer.features),
    ]
