"""Actions of a soak: faults of the broker, of the daemon and of the store. Each returns when both serve."""

import time
from collections.abc import Callable
from random import Random

from tests.services.waiting import wait_until
from tests.soak.cutting import cut_log_back
from tests.soak.lab import READY_DEADLINE_S, SoakLab
from tests.soak.topics import BUSY, COMPACTED, CUT_BACK, PLAIN, PREALLOCATED, RECREATED, TRANSACTIONS, create

Action = Callable[[SoakLab, Random], None]
_RETENTION_DEADLINE_S = 120.0
_COMPACT_DEADLINE_S = 300.0


def kill_broker(lab: SoakLab, random: Random) -> None:
    """SIGKILL the broker and start it again."""
    lab.restart_broker()


def stop_broker(lab: SoakLab, random: Random) -> None:
    """Stop the broker cleanly and start it again."""
    lab.broker.stop()
    lab.broker.start()
    lab.wait_led()


def kill_daemon(lab: SoakLab, random: Random) -> None:
    """SIGKILL the daemon after a random moment, twice."""
    for _ in range(2):
        time.sleep(random.random())
        lab.restart_daemon()


def kill_both(lab: SoakLab, random: Random) -> None:
    """SIGKILL broker and daemon at once; start them in random order."""
    lab.daemon.kill()
    lab.broker.kill()
    starts = [lab.broker.start, lab.daemon.start]
    random.shuffle(starts)
    for start in starts:
        start()
    lab.daemon.wait_ready(deadline_s=READY_DEADLINE_S)
    lab.wait_led()


def delete_records(lab: SoakLab, random: Random) -> None:
    """Move the log start of a partition to a random offset inside a segment.

    A log start where a segment begins, or may begin later (the end), looks like retention: the tier keeps the records.
    """
    topic, partition = random.choice([*PLAIN.partitions, *PREALLOCATED.partitions, *CUT_BACK.partitions])
    # A request below the broker's own log start succeeds and moves nothing, so that its files do not show it.
    last = lab.committed_end((topic, partition)) - 1
    base_offsets = lab.broker.base_offsets(topic, partition)
    start = max(lab.log_starts.get((topic, partition), 0), base_offsets[0])
    before = min(start + random.randrange(1, 400), last)
    if before > start and before not in base_offsets:
        lab.broker.delete_records(topic, partition, before)
        lab.wait_log_start_checkpointed((topic, partition), before)
        if lab.is_obeyed((topic, partition), before):
            lab.log_starts[topic, partition] = before


def local_retention(lab: SoakLab, random: Random) -> None:
    """Let the broker delete every rolled segment of a topic after the consumer has read it."""
    topic = random.choice(BUSY)
    lab.oracle.observe(topic.partitions)
    rolled = {each: lab.broker.base_offsets(*each)[-1] for each in topic.partitions}
    lab.broker.alter_topic(topic.name, {"retention.bytes": "1"})
    for each, base in rolled.items():
        wait_until(
            lambda e=each, b=base: lab.broker.base_offsets(*e)[0] >= b,  # type: ignore[misc]  # defaults bind the loop's values
            what=f"the broker to delete {each} before {base}",
            deadline_s=_RETENTION_DEADLINE_S,
            interval_s=0.2,
        )
    lab.broker.alter_topic(topic.name, {"retention.bytes": "-1"})


def move_between_log_dirs(lab: SoakLab, random: Random) -> None:
    """Move the replica of a partition to the other log dir."""
    topic, partition = random.choice([*PLAIN.partitions, *PREALLOCATED.partitions, (COMPACTED, 0)])
    here = lab.broker.partition_dir(topic, partition)
    assert here is not None, f"{topic}-{partition} has no directory"
    target = next(each for each in lab.broker.log_dirs if each != here.parent)
    lab.broker.reassign(topic, partition, [1], log_dir=target)
    wait_until(
        lambda: (target / here.name).is_dir() and not here.is_dir(),
        what=f"{here.name} to be in {target.name}",
        deadline_s=_RETENTION_DEADLINE_S,
        interval_s=0.2,
    )


def recreate_topic(lab: SoakLab, random: Random) -> None:
    """Delete a filled topic and create another one under its name, sometimes while the daemon is down."""
    lab.traffic.fill(RECREATED, rolled_segments=2)
    is_down = random.random() < 0.5
    if is_down:
        lab.daemon.kill()
    else:
        time.sleep(2 * random.random())
    lab.broker.delete_topic(RECREATED.name)
    wait_until(
        lambda: lab.broker.partition_dir(RECREATED.name, 0) is None, what="the topic to go", deadline_s=READY_DEADLINE_S
    )
    lab.traffic.records.journal.forget(RECREATED.name)
    lab.oracle.forget((RECREATED.name, 0))
    lab.log_starts.pop((RECREATED.name, 0), None)
    create(lab.broker, RECREATED.name)
    if is_down:
        lab.daemon.start()
        lab.daemon.wait_ready(deadline_s=READY_DEADLINE_S)
    lab.traffic.fill(RECREATED, rolled_segments=2)


def spoil_store(lab: SoakLab, random: Random) -> None:
    """Let requests to the store fail in one of several ways for some seconds."""
    path = lab.s3.path
    kind = random.choice(["down", "latency", "reset_peer", "timeout", "lost_reply", "bandwidth"])
    match kind:
        case "down":
            path.disable()
        case "latency":
            path.add("latency", "downstream", latency=800)
        case "reset_peer":
            path.add("reset_peer", "downstream", timeout=50)
        case "timeout":
            path.add("timeout", "downstream", timeout=0)
        case "lost_reply":
            path.add("limit_data", "downstream", bytes=30)
        case _:
            path.add("bandwidth", "upstream", rate=20)
    time.sleep(2 + 8 * random.random())
    match kind:
        case "down":
            path.enable()
        case "lost_reply":
            path.remove("limit_data")
        case "bandwidth":
            path.remove("bandwidth", "upstream")
        case _:
            path.remove(kind)


def lose_unflushed_tail(lab: SoakLab, random: Random) -> None:
    """Cut a log back below what was copied, as a lost page cache does, and let it grow again over the same offsets."""
    topic, partition = CUT_BACK.partitions[0]
    lab.traffic.fill(CUT_BACK, rolled_segments=3)
    lab.wait_copied([(topic, partition)])
    lab.traffic.fill(CUT_BACK, rolled_segments=1)
    is_down = random.random() < 0.5
    if is_down:
        lab.daemon.kill()
    lab.broker.kill()
    directory = lab.broker.partition_dir(topic, partition)
    assert directory is not None, f"{topic}-{partition} has no directory"
    end = cut_log_back(directory, segments=random.randrange(1, 4), at_least=lab.log_starts.get((topic, partition), 0))
    lab.broker.start()
    lab.wait_led()
    lab.traffic.records.begin_anew()
    lab.traffic.records.journal.lose(topic, partition, from_offset=end)
    lab.oracle.forget((topic, partition), from_offset=end)
    lab.traffic.fill(CUT_BACK, rolled_segments=2)
    if is_down:
        lab.daemon.start()
        lab.daemon.wait_ready(deadline_s=READY_DEADLINE_S)


def hold_transaction_open(lab: SoakLab, random: Random) -> None:
    """Leave a transaction open while segments roll behind its first record, then commit or abort it."""
    topic, partition = TRANSACTIONS.partitions[0]
    records = lab.traffic.records.unique_records(random, 10)
    with lab.broker.producer(transactional_id="held-open") as producer:
        producer.begin_transaction()
        producer.send(topic, partition, records)
        producer.flush()
        lab.traffic.fill(TRANSACTIONS, rolled_segments=2)
        commit = random.random() < 0.5
        if commit:
            lab.traffic.records.journal.doubt(topic, partition, records)  # their offsets are told to the consumer only
        producer.end_transaction(commit=commit)


def compact_tier(lab: SoakLab, random: Random) -> None:
    """Run a compaction of the tier now, beside the broker's own cleaner and the copies."""
    lab.tierd.tierd("compact", "--once", deadline_s=_COMPACT_DEADLINE_S)


ACTIONS: tuple[Action, ...] = (
    kill_broker,
    stop_broker,
    kill_daemon,
    kill_both,
    delete_records,
    local_retention,
    move_between_log_dirs,
    recreate_topic,
    spoil_store,
    lose_unflushed_tail,
    hold_transaction_open,
    compact_tier,
)
