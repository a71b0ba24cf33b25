"""Options that the verbs of ``tierd restore`` share, and the request that they make."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from tierd.app import LogDirPlanRequest, LogDirRestoreRequest, SourceRequest
from tierd.cli.moments import duration_s_of, timestamp_ms_of
from tierd.cli.options import require_patterns
from tierd.model import TopicPartition, is_topic_name, uuid_from_text
from tierd.restore import ExpiredSegments, RestoreMode

IntoOption = Annotated[
    Path,
    typer.Option(
        "--into",
        metavar="LOGDIR",
        help="The log dir that gets the partitions: of a stopped broker, or one that no broker has had.",
        file_okay=False,
        resolve_path=True,
    ),
]
StageOption = Annotated[
    Path | None,
    typer.Option(
        "--stage",
        metavar="DIR",
        help="Directory for unfinished work, on the file system of the log dir; default: LOGDIR.tierd-restore.",
        file_okay=False,
        resolve_path=True,
    ),
]
ModeOption = Annotated[
    RestoreMode,
    typer.Option(
        "--mode",
        help="replica: other replicas live, the leader supplies the rest. last-copy: no other replica is left. "
        "import: into a new topic or cluster.",
    ),
]
ToOffsetOption = Annotated[
    int | None,
    typer.Option("--to-offset", min=1, metavar="O", help="Restore only what lies below this offset."),
]
ToTimeOption = Annotated[
    str | None,
    typer.Option("--to-time", metavar="T", help="Restore up to this time: ISO 8601, or milliseconds since 1970."),
]
ByTimestampOption = Annotated[
    bool,
    typer.Option(
        "--by-timestamp",
        help="With --to-time: end each partition before its first record that is not older than T; "
        "without it, the positions of the catalogue are one cut over all partitions.",
    ),
]
HoldRetentionOption = Annotated[
    bool,
    typer.Option(
        "--hold-retention",
        help="Restore also what the topic's retention would delete at once, and hold the retention: over "
        "leadership.kafka, or with the commands that the plan prints. tierd restore release-retention lifts it.",
    ),
]
SkipExpiredOption = Annotated[
    bool,
    typer.Option("--skip-expired", help="Leave out the beginning of a log that the topic's retention would delete."),
]
RetentionOption = Annotated[
    str | None,
    typer.Option(
        "--retention",
        metavar="DURATION",
        help="The retention of the topics in Kafka, where tierd cannot know it; -1: for ever.",
    ),
]
StandbyOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--standby",
        metavar="DIR",
        help="Log dir of a standby, or a copy of it: its records beyond the tier's end are restored too; repeatable.",
        file_okay=False,
        resolve_path=True,
    ),
]
AcceptHolesOption = Annotated[
    bool, typer.Option("--accept-holes", help="Restore a log although offsets in its middle are missing.")
]
ForBrokerOption = Annotated[
    int | None,
    typer.Option(
        "--for-broker",
        min=0,
        metavar="N",
        help="Node id of the broker that gets the partitions; log-dir takes those that the catalogue assigns to it.",
    ),
]
OthersDownOption = Annotated[
    bool,
    typer.Option(
        "--others-down",
        help="With --mode last-copy: the other brokers that the plan names are stopped, and stay so as it says.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Carry out the plan; without it the plan is only printed.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")]
TopicIdOption = Annotated[
    str | None,
    typer.Option("--topic-id", metavar="ID", help="With --mode import: the id of the new topic, as kafka-topics says."),
]
AsOption = Annotated[
    str | None, typer.Option("--as", metavar="TOPIC", help="With --mode import: the name of the new topic.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreArguments:
    """Arguments of a verb that restores into a log dir, as they were typed."""

    into: Path
    stage: Path | None
    mode: RestoreMode
    to_offset: int | None
    to_time: str | None
    by_timestamp: bool
    hold_retention: bool
    skip_expired: bool
    retention: str | None
    accept_holes: bool
    others_down: bool
    for_broker: int | None
    cluster_id: str | None
    from_bucket: bool
    accept_unauthenticated: bool
    standbys: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    as_topic: str | None = None
    topic_id: str | None = None

    def request(self, on_progress: Callable[[str], None]) -> LogDirRestoreRequest:
        """Return the request of these arguments.

        Raises:
            typer.BadParameter: one cannot be understood, or two contradict each other.
            PartitionNameError: a name is none of a partition.
        """
        self._require_consistent()
        names = tuple(map(TopicPartition.parse, self.names))
        if self.as_topic is not None and len({name.topic for name in names}) != 1:
            raise typer.BadParameter("--as names one topic: give partitions of one topic")
        plan = LogDirPlanRequest(
            names=names,
            topics=self.topics,
            mode=self.mode,
            to_offset=self.to_offset,
            to_time_ms=None if self.to_time is None else timestamp_ms_of(self.to_time),
            by_timestamp=self.by_timestamp,
            expired=expired_segments(hold=self.hold_retention, skip=self.skip_expired),
            accepts_holes=self.accept_holes,
            are_others_down=self.others_down,
            for_broker=self.for_broker,
            retention_ms=None if self.retention is None else _retention_ms(self.retention),
            as_topic=self.as_topic,
            topic_id=_topic_id(self.topic_id),
            standbys=self.standbys,
        )
        source = SourceRequest(
            cluster_id=self.cluster_id,
            from_bucket=self.from_bucket,
            accepts_unauthenticated=self.accept_unauthenticated,
            may_be_empty=bool(self.standbys),
        )
        return LogDirRestoreRequest(into=self.into, stage=self.stage, plan=plan, source=source, on_progress=on_progress)

    def _require_consistent(self) -> None:
        if self.to_offset is not None and self.to_time is not None:
            raise typer.BadParameter("--to-offset and --to-time exclude each other; give one")
        if self.standbys and (self.to_offset is not None or self.to_time is not None):
            raise typer.BadParameter("--standby is for the newest records: without --to-offset and --to-time")
        require_consistent(
            self.to_time, hold=self.hold_retention, skip=self.skip_expired, by_timestamp=self.by_timestamp
        )
        if self.mode is not RestoreMode.IMPORT and (self.as_topic or self.topic_id):
            raise typer.BadParameter("--as and --topic-id are for --mode import: other modes keep the topic")
        if self.as_topic is not None and not is_topic_name(self.as_topic):
            raise typer.BadParameter("--as: a topic's name has letters, digits, '.', '_' and '-', at most 249")
        require_patterns(self.topics)


def require_consistent(to_time: str | None, *, hold: bool, skip: bool, by_timestamp: bool) -> None:
    """Refuse options of a restore that contradict each other.

    Raises:
        typer.BadParameter: two of them do.
    """
    if by_timestamp and to_time is None:
        raise typer.BadParameter("--by-timestamp needs --to-time")
    if hold and skip:
        raise typer.BadParameter("--hold-retention and --skip-expired exclude each other; give one")


def expired_segments(*, hold: bool, skip: bool) -> ExpiredSegments:
    """Return what becomes of segments that the retention would delete at once."""
    if skip:
        return ExpiredSegments.SKIP
    return ExpiredSegments.HOLD if hold else ExpiredSegments.REFUSE


def _retention_ms(text: str) -> int:
    return max(-1, round(duration_s_of(text, "--retention") * 1000))


def _topic_id(text: str | None) -> UUID | None:
    try:
        return None if text is None else uuid_from_text(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--topic-id") from error
