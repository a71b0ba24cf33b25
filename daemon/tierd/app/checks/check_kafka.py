"""The steps of ``check-config --online`` that ask Kafka: every bootstrap server, cluster, controller, our node."""

import asyncio
from functools import partial

from tierd.app.checks.checklist import Checklist
from tierd.config import KafkaConnectionSettings
from tierd.control import BrokerAddress, BrokerProbe, bootstrap_addresses, probe_broker, probe_controller, release_of
from tierd.errors import ForeignClusterError, KafkaError, KafkaUnreachableError
from tierd.log import BrokerIdentity

_AREA = "Kafka"


async def check_kafka(settings: KafkaConnectionSettings, identity: BrokerIdentity | None, checklist: Checklist) -> None:
    """Ask every bootstrap server at once; then compare what the first one that answered says with this host.

    Each step ends by ``connect_timeout_s`` and ``request_timeout_s``.

    Args:
        settings: the connection that the daemon would use.
        identity: this broker's, as its log dirs have it; None where that is not known.
        checklist: takes the steps.
    """
    addresses = bootstrap_addresses(settings)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_probed(each, settings), name=f"probe {each}") for each in addresses]
    outcomes = [task.result() for task in tasks]
    for address, outcome in zip(addresses, outcomes, strict=True):
        await checklist.step(_AREA, str(address), partial(_reached, outcome))
    probe = next((outcome for outcome in outcomes if isinstance(outcome, BrokerProbe)), None)
    if probe is not None:
        await checklist.step(_AREA, "cluster", partial(_our_cluster, probe, identity))
        await checklist.step(_AREA, "controller", partial(probe_controller, probe, settings))
        await checklist.step(_AREA, "this broker", partial(_our_broker, probe, identity))


async def _probed(address: BrokerAddress, settings: KafkaConnectionSettings) -> BrokerProbe | KafkaError:
    try:
        return await probe_broker(address, settings)
    except KafkaError as error:
        return error


async def _reached(outcome: BrokerProbe | KafkaError) -> str:
    if isinstance(outcome, KafkaError):
        raise outcome
    return f"{release_of(outcome.software)}; {outcome.security}"


async def _our_cluster(probe: BrokerProbe, identity: BrokerIdentity | None) -> str:
    theirs = probe.cluster.cluster_id
    if theirs is None:
        raise KafkaUnreachableError(
            f"{probe.address}: the broker does not know its cluster yet", remedy="try again in a moment"
        )
    if identity is None:
        return f"{theirs}; the log dirs do not say theirs"
    if theirs != identity.cluster_id:
        raise ForeignClusterError(
            f"{probe.address} belongs to cluster {theirs}, the log dirs to {identity.cluster_id}",
            remedy="let leadership.kafka.bootstrap_servers name brokers of the cluster whose log dirs these are",
        )
    return f"{theirs}, as in the log dirs"


async def _our_broker(probe: BrokerProbe, identity: BrokerIdentity | None) -> str:
    alive = {broker.node_id: broker for broker in probe.cluster.brokers}
    named = ", ".join(map(str, sorted(each for each in alive if each is not None))) or "none"
    if identity is None:
        return f"not known, since the log dirs do not say it; alive: {named}"
    if identity.node_id not in alive:
        raise KafkaUnreachableError(
            f"broker {identity.node_id}, whose log dirs these are, is not among the brokers alive: {named}",
            remedy="start that broker, or correct log_dirs and node_id",
        )
    return f"broker {identity.node_id} is alive at {alive[identity.node_id]}; {len(alive)} brokers in all"
