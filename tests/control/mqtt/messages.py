"""Messages of the control plane for tests, and strategies of them."""

from uuid import UUID

from hypothesis import strategies as st

from tierd.control.mqtt.control_messages import (
    ControlMessage,
    LeaderAnnouncement,
    NodeState,
    PeerEndpoint,
    PeerReply,
    PeerRequest,
    PushSessionEvent,
    TopicAnnouncement,
)
from tierd.control.mqtt.control_topics import (
    MAX_NODE_ID,
    ControlTopic,
    LeaderTopic,
    NodeStateTopic,
    PushEventTopic,
    ReplyTopic,
    RequestTopic,
    TopicMetaTopic,
)

CLUSTER = "lkc-1"
ORDERS = UUID(int=7)
node_ids = st.integers(0, MAX_NODE_ID)
epochs = st.integers(0, 2**31 - 1)
longs = st.integers(0, 2**63 - 1)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
topic_ids = st.uuids()

topics: st.SearchStrategy[ControlTopic] = st.one_of(
    st.builds(NodeStateTopic, node_ids),
    st.builds(RequestTopic, node_ids, st.sampled_from(["status", "session.list", "truncate.preview"])),
    st.builds(ReplyTopic, node_ids, st.from_regex(r"[0-9a-z]{1,40}", fullmatch=True)),
    st.builds(LeaderTopic, topic_ids, node_ids),
    st.builds(PushEventTopic, topic_ids, node_ids, node_ids),
    st.builds(TopicMetaTopic, topic_ids),
)


def messages_of(topic: ControlTopic) -> st.SearchStrategy[ControlMessage]:
    """Return messages that ``topic`` may carry."""
    head = {"cluster": st.just(CLUSTER), "node": node_ids, "process_epoch": longs, "seq": longs, "ts": longs}
    replicas = st.lists(node_ids, max_size=5).map(tuple)
    match topic:
        case NodeStateTopic(node_id):
            endpoints = st.none() | st.builds(PeerEndpoint, host=st.just("h"), port=st.integers(1, 65535))
            fields = {**head, "node": st.just(node_id), "online": st.booleans(), "started_at": longs}
            return st.builds(NodeState, **fields, endpoint=endpoints, features=st.lists(names, max_size=3).map(tuple))
        case LeaderTopic():
            fields = {**head, "leader": node_ids, "leader_epoch": epochs, "partition_epoch": epochs}
            return st.builds(LeaderAnnouncement, **fields, replicas=replicas, isr=replicas)
        case PushEventTopic():
            fields = {**head, "event": st.sampled_from(["started", "ended"]), "leader_epoch": epochs}
            return st.builds(PushSessionEvent, **fields, replica_epoch=longs, session_id=longs, reason=names)
        case TopicMetaTopic():
            partitions = st.none() | st.integers(1, 1000)
            return st.builds(
                TopicAnnouncement, **head, name=names.filter(bool), partitions=partitions, deleted=st.booleans()
            )
        case RequestTopic():
            return st.builds(PeerRequest, **head, partitions=st.lists(names, max_size=5).map(tuple))
        case ReplyTopic():
            return st.builds(PeerReply, **head, ok=st.booleans(), answer=st.none() | names, error=names)


def leader(leader_id: int, leader_epoch: int, partition_epoch: int = 0, *, node: int = 9) -> LeaderAnnouncement:
    return LeaderAnnouncement(
        cluster=CLUSTER,
        node=node,
        process_epoch=1,
        seq=1,
        ts=1,
        leader=leader_id,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


def presence(node: int, process_epoch: int, seq: int, *, online: bool = True, instance: str = "other") -> NodeState:
    return NodeState(
        cluster=CLUSTER,
        node=node,
        process_epoch=process_epoch,
        seq=seq,
        ts=1,
        online=online,
        started_at=1,
        instance=instance,
    )
