"""Driver of ``PushRouter``: a leader that sends its appends to the standbys 1, 2 and so on.

::

    settings buffer_max_bytes=1000                    of PushSettings, before all else
    start orders-0 [to=1] [session=5] [epoch=1] [process=100]      process: epoch of the standby's process
    file orders-0 0-99 [to=1] [size=100B] [last-epoch=-1]          opening range: a batch of that size per 100 offsets
    empty orders-0 100 [to=1] [last-epoch=-1]         opening range without records
    append orders-0 100-109 [to=1,2] [size=100B]      one batch
    watermark orders-0 100 [to=1,2]
    log-start orders-0 50 [to=1,2]
    stop orders-0 LEADER_RESIGNED [to=1,2]
    answer 1 [code=75] [leo=12] [whole]               oldest request of standby 1; whole: code of the whole request
    network down | up                                 connections that are made from now on fail, or succeed
    break                                             connections with a request break
    wait 3s
    status
"""

from collections.abc import Iterator
from dataclasses import fields

from tests.replication.leader.push_story import (
    HeldRange,
    PushStory,
    RecordingSession,
    base_offsets,
    batch,
    end_of,
    topic_partition,
)
from tests.transcripts.transcript import Command, TranscriptError
from tests.transcripts.units import parse_duration, parse_offsets, parse_size
from tierd.model import TopicPartition
from tierd.replication.leader.pushing.push_actions import (
    CloseLink,
    LeadershipDoubted,
    OpenLink,
    PushSessionEnded,
    RecordsAcknowledged,
    ReleaseFile,
    SendAppend,
)
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.model.messages import PartitionAppend
from tierd.replication.model.push_session import PushSessionEndReason, PushSessionIdentity

OFFSETS_PER_BATCH = 100


class ToldPushStory(PushStory):
    """Story that writes down what the router asks for."""

    def __init__(self, **settings: float) -> None:
        """Begin without a session."""
        super().__init__(**settings)
        self.lines: list[str] = []
        self.began_s = 0.0
        self.peers: dict[tuple[int, int], int] = {}

    def put_first(self, standby: int) -> None:
        """Let the oldest request of a standby be the next one that is answered."""
        for place, action in enumerate(self.outstanding):
            if self.peers[action.pusher, action.link_id] == standby:
                self.outstanding.insert(0, self.outstanding.pop(place))
                return
        raise TranscriptError(f"standby {standby} has no request")

    def _perform(self, action: object) -> None:
        if isinstance(action, OpenLink):
            self.peers[action.pusher, action.link_id] = action.node.node_id
        for line in self._told(action):
            after_ms = round((self.now_s - self.began_s) * 1000)
            self.lines.append(f"after {after_ms} ms: {line}" if after_ms else line)
        super()._perform(action)

    def _told(self, action: object) -> Iterator[str]:
        match action:
            case OpenLink():
                yield f"connect to {action.node.node_id}" + ("" if self.is_reachable else ", which fails")
            case CloseLink():
                yield f"close the connection to {self.peers[action.pusher, action.link_id]}"
            case SendAppend():
                for part in action.request.partitions:
                    yield f"to {self.peers[action.pusher, action.link_id]}: {_shown(part)}"
            case RecordsAcknowledged():
                yield f"{_replica(action.session.identity)}: acknowledged up to {action.log_end_offset}"
            case PushSessionEnded():
                yield f"{_replica(action.session.identity)}: session ended, {action.reason.name}"
            case LeadershipDoubted():
                yield f"{action.partition}: check the leadership of epoch {action.leader_epoch}"
            case ReleaseFile():
                yield "close the opening range"


class PushingLeader:
    """Leader with its standbys."""

    def __init__(self) -> None:
        """Begin with the settings that tierd has by default."""
        self._story = ToldPushStory()

    def run(self, command: Command) -> Iterator[str]:
        """Carry out a command, and yield what the router asks for."""
        self._story.began_s = self._story.now_s
        match command.name:
            case "settings":
                self._story = ToldPushStory(**_settings(command))
            case "answer":
                self._answer(command)
            case "network":
                self._story.is_reachable = command.word() == "up"
            case "break":
                self._story.break_links()
            case "wait":
                self._story.wait(parse_duration(command.word()) / 1000)
            case "status":
                yield from self._status()
            case _:
                self._change(command)
        yield from self._story.lines
        self._story.lines.clear()

    def _change(self, command: Command) -> None:
        """Play an event of the leader's log or of a session."""
        story = self._story
        partition = TopicPartition.parse(command.word()).partition
        replicas = [int(each) for each in command.option("to", "1").split(",")]
        match command.name:
            case "start":
                story.open(_session(command, partition, replicas[0]))
            case "file":
                self._begin(command, partition, replicas[0], _file(command))
            case "empty":
                offset = int(command.word())
                self._begin(command, partition, replicas[0], HeldRange(offset, offset))
            case "append":
                offsets, size = parse_offsets(command.word()), parse_size(command.option("size", "100B"))
                count = offsets.end - offsets.start + 1
                story.append(offsets.start, partition=partition, replicas=replicas, count=count, size=size)
            case "watermark":
                story.high_watermark(int(command.word()), partition=partition, replicas=replicas)
            case "log-start":
                story.log_start(int(command.word()), partition=partition, replicas=replicas)
            case "stop":
                story.stop(PushSessionEndReason[command.word()], partition=partition, replicas=replicas)
            case _:
                raise command.unknown()

    def _begin(self, command: Command, partition: int, replica: int, file: HeldRange) -> None:
        last_epoch = int(command.option("last-epoch", "-1"))
        self._story.router.on_leader_append(
            topic_partition(partition),
            [replica],
            file.first_offset,
            file,
            last_epoch=last_epoch,
            now_s=self._story.now_s,
        )
        self._story.log_end_offsets[replica, partition] = file.first_offset
        self._story.step()

    def _answer(self, command: Command) -> None:
        self._story.put_first(int(command.word()))
        code, leo = int(command.option("code", "0")), command.option("leo", "")
        offset = int(leo) if leo else None
        if command.words() == ["whole"]:
            self._story.answer(code=code, leo=offset)
        else:
            self._story.answer(*[code] * len(self._story.outstanding[0].request.partitions), leo=offset)

    def _status(self) -> Iterator[str]:
        router = self._story.router
        yield f"{router.budget.used_bytes} of {router.budget.cap_bytes} B of memory"
        for slot in router.sessions():
            yield (
                f"{_replica(slot.session.identity)}: {slot.state.value}, acknowledged up to {slot.acked_offset}, "
                f"{slot.unacked_bytes} B unacknowledged"
            )


def _settings(command: Command) -> dict[str, float]:
    texts = {field.name: command.option(field.name, "") for field in fields(PushSettings)}
    return {name: float(text) if "." in text else int(text) for name, text in texts.items() if text}


def _session(command: Command, partition: int, replica: int) -> RecordingSession:
    return RecordingSession(
        PushSessionIdentity(
            topic_partition(partition),
            replica,
            int(command.option("epoch", "1")),
            int(command.option("process", "100")),
            int(command.option("session", "5")),
        )
    )


def _file(command: Command) -> HeldRange:
    offsets, size = parse_offsets(command.word()), parse_size(command.option("size", "100B"))
    end = offsets.end + 1
    data = b"".join(
        batch(first, count=min(OFFSETS_PER_BATCH, end - first), size=size)
        for first in range(offsets.start, end, OFFSETS_PER_BATCH)
    )
    return HeldRange(offsets.start, end, data)


def _replica(identity: PushSessionIdentity) -> str:
    return f"{identity.partition} on {identity.replica_id}"


def _shown(part: PartitionAppend) -> str:
    words = [f"orders-{part.partition}, session {part.session_id}"]
    if part.end_session:
        words.append(f"end of the session, {PushSessionEndReason(part.end_reason).name}")
    elif part.records:
        batches = len(base_offsets(part))
        words.append(f"{part.append_offset}-{end_of(part) - 1} in {batches} batch{'es' if batches > 1 else ''}")
    elif part.append_offset >= 0:
        words.append(f"nothing at {part.append_offset}")
    if part.append_offset >= 0:
        words.append(f"after epoch {part.last_epoch}")
    if part.high_watermark >= 0:
        words.append(f"watermark {part.high_watermark}")
    if part.log_start_offset >= 0:
        words.append(f"log start {part.log_start_offset}")
    return ", ".join(words)
