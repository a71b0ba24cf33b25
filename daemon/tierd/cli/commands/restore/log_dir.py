"""``tierd restore partition`` and ``tierd restore log-dir``: put partitions back into a log dir, some or all."""

from typing import Annotated

import typer

from tierd.app import Deployment
from tierd.cli.completion import partition_names
from tierd.cli.options import (
    DEFAULT_CONFIG,
    AcceptUnauthenticatedOption,
    ClusterIdOption,
    ConfigOption,
    FromBucketOption,
    JsonOption,
)
from tierd.cli.restore_options import (
    AcceptHolesOption,
    AsOption,
    ByTimestampOption,
    DryRunOption,
    ForBrokerOption,
    HoldRetentionOption,
    IntoOption,
    ModeOption,
    OthersDownOption,
    RestoreArguments,
    RetentionOption,
    SkipExpiredOption,
    StageOption,
    StandbyOption,
    ToOffsetOption,
    TopicIdOption,
    ToTimeOption,
    YesOption,
)
from tierd.cli.restore_output import restore_into_log_dir
from tierd.cli.session import begin


def partition(
    partitions: Annotated[
        list[str],
        typer.Argument(metavar="TP", help="Partitions, topic-partition each.", autocompletion=partition_names),
    ],
    *,
    into: IntoOption,
    mode: ModeOption,
    stage: StageOption = None,
    to_offset: ToOffsetOption = None,
    to_time: ToTimeOption = None,
    by_timestamp: ByTimestampOption = False,
    hold_retention: HoldRetentionOption = False,
    skip_expired: SkipExpiredOption = False,
    retention: RetentionOption = None,
    standby: StandbyOption = None,
    accept_holes: AcceptHolesOption = False,
    others_down: OthersDownOption = False,
    for_broker: ForBrokerOption = None,
    as_topic: AsOption = None,
    topic_id: TopicIdOption = None,
    cluster_id: ClusterIdOption = None,
    from_bucket: FromBucketOption = False,
    accept_unauthenticated: AcceptUnauthenticatedOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Put partitions back into a log dir, from the tier and from what is left of them there. Stop the broker first.

    A stock broker starts on the result, with every offset as it was. Needs no daemon and no broker; if the metadata
    store is lost too, the metadata comes from the bucket. An existing directory is moved aside, never deleted. After
    an interruption, run the same command again.

    Examples:
        tierd restore partition orders-0 --into /var/lib/kafka/data --mode last-copy --dry-run

        tierd restore partition orders-0 --into /var/lib/kafka/data --mode last-copy --yes
    """
    arguments = RestoreArguments(
        into=into,
        stage=stage,
        mode=mode,
        to_offset=to_offset,
        to_time=to_time,
        by_timestamp=by_timestamp,
        hold_retention=hold_retention,
        skip_expired=skip_expired,
        retention=retention,
        standbys=tuple(standby or ()),
        accept_holes=accept_holes,
        others_down=others_down,
        for_broker=for_broker,
        cluster_id=cluster_id,
        from_bucket=from_bucket,
        accept_unauthenticated=accept_unauthenticated,
        names=tuple(partitions),
        as_topic=as_topic,
        topic_id=topic_id,
    )
    deployment = Deployment(begin(config), config)
    restore_into_log_dir(deployment, arguments, is_confirmed=yes and not dry_run, is_plan=dry_run, as_json=as_json)


def log_dir(
    *,
    into: IntoOption,
    mode: ModeOption,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="REGEX", help="Only topics whose whole name matches; may be repeated."),
    ] = None,
    stage: StageOption = None,
    to_offset: ToOffsetOption = None,
    to_time: ToTimeOption = None,
    by_timestamp: ByTimestampOption = False,
    hold_retention: HoldRetentionOption = False,
    skip_expired: SkipExpiredOption = False,
    retention: RetentionOption = None,
    standby: StandbyOption = None,
    accept_holes: AcceptHolesOption = False,
    others_down: OthersDownOption = False,
    for_broker: ForBrokerOption = None,
    cluster_id: ClusterIdOption = None,
    from_bucket: FromBucketOption = False,
    accept_unauthenticated: AcceptUnauthenticatedOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Put every partition of the tier back into a log dir. Stop the broker first.

    As tierd restore partition, for all partitions that the tier has. Partitions that cannot or need not be restored
    are left out, and the plan says why. A damaged partition does not keep the others from being restored: it is named,
    and the exit code is 1.

    Examples:
        tierd restore log-dir --into /var/lib/kafka/data --mode last-copy --dry-run

        tierd restore log-dir --into /var/lib/kafka/data --mode replica --for-broker 1 --yes
    """
    arguments = RestoreArguments(
        into=into,
        stage=stage,
        mode=mode,
        to_offset=to_offset,
        to_time=to_time,
        by_timestamp=by_timestamp,
        hold_retention=hold_retention,
        skip_expired=skip_expired,
        retention=retention,
        standbys=tuple(standby or ()),
        accept_holes=accept_holes,
        others_down=others_down,
        for_broker=for_broker,
        cluster_id=cluster_id,
        from_bucket=from_bucket,
        accept_unauthenticated=accept_unauthenticated,
        topics=tuple(topics or ()),
    )
    deployment = Deployment(begin(config), config)
    restore_into_log_dir(deployment, arguments, is_confirmed=yes and not dry_run, is_plan=dry_run, as_json=as_json)
