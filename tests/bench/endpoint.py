"""The read endpoint against the stock broker that serves the same topic to the same ``kafka-consumer-perf-test``.

Both take turns in one run, with the same warm Java for the tool. Records are read from the local log beside the broker,
from the chunk cache of a ``tierd serve`` that has no log, and from an S3 server by one whose caches are empty. That one
is also read by a client that decodes nothing, against a plain loop of ranged GETs: the tool is slower than both.
The loop writes nothing to disk; tierd is measured with its cache of chunks, which it fills, and without one.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Final, NamedTuple

from tests.bench.child_process import cpu_seconds
from tests.bench.endpoint_latency import first_bytes_ms, wake_ups_ms
from tests.bench.jvm import FAST_JVM, environment
from tests.bench.plain_client import PlainCost, plain_fetches
from tests.bench.report import Figure
from tests.scenarios.golden_server import endpoint_settings
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.lost_disks import CLUSTER_ID
from tests.scenarios.stores import s3_section
from tests.services.kafka_clients.java_tools import JavaTools
from tests.services.kafka_cluster import KafkaBroker, require_kafka
from tests.services.kafka_node import KAFKA_SCRIPT, kafka_environment
from tests.services.ports import free_port
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import Services
from tierd.app import Deployment
from tierd.clock import SystemClock
from tierd.config import load_config
from tierd.model import ByteRange

_VERSION: Final = "4.3.1"
_SEGMENTS: Final = 8
_PIECE_BYTES: Final = 4 << 20
_COPY_DEADLINE_S: Final = 1800.0
_SHAPES: Final = {"1 KB": 1000, "100 B": 100}
_MIB_BYTES: Final = 1 << 20  # the tool calls it MB


class Cost(NamedTuple):
    """Cost of one read."""

    bytes_per_s: float
    cpu_s_per_gb: float


@dataclass(frozen=True)
class Server:
    """Process that serves the topics to clients."""

    bootstrap: str
    pid: int


@dataclass(frozen=True)
class Lab:
    """Broker, store and tools of one run.

    Attributes:
        records: number of records of each topic that all servers have, the tier included.
    """

    root: Path
    broker: KafkaBroker
    remote: Settings
    tools: JavaTools
    records: Mapping[str, int]
    rounds: int

    def read(self, server: Server, topic: str) -> Cost:
        """Have the tool read a topic from a server."""
        before_s = cpu_seconds(server.pid)
        wanted = ("--topic", topic, "--num-records", str(self.records[topic]), "--hide-header", "--timeout", "60000")
        printed = self.tools.done("kafka-consumer-perf-test", server.bootstrap, *wanted).lines[-1].split(", ")
        mebibytes, rate = float(printed[2]), float(printed[8])  # without the time of the rebalance
        size_bytes = mebibytes * _MIB_BYTES
        assert int(printed[4]) >= self.records[topic], (server, printed)
        return Cost(rate * _MIB_BYTES, (cpu_seconds(server.pid) - before_s) / (size_bytes / 1e9))


def bench_endpoint(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Read topics of about ``size_bytes`` with records of each size, from every place where they can be."""
    require_kafka(_VERSION)
    (root / "services").mkdir()
    with environment(FAST_JVM), Services(root / "services") as services:
        service = S3Service.of(services.start("s3"), services)
        admin = S3Admin(service)
        remote = s3_section(service, admin.create_bucket())
        admin.close()
        with KafkaBroker(root / "lab", version=_VERSION) as broker, JavaTools(_VERSION, root / "tools.log") as tools:
            for name, record_bytes in _SHAPES.items():
                _fill(broker, _topic(name), size_bytes, record_bytes)
            return _figures(root, broker, remote, tools, rounds)


def _figures(root: Path, broker: KafkaBroker, remote: Settings, tools: JavaTools, rounds: int) -> list[Figure]:
    beside, port = _installation(root / "beside", broker.log_dirs, remote)
    beside.configure({"leadership": {"kafka": {"bootstrap_servers": broker.bootstrap.split(",")}}})
    topics = [_topic(name) for name in _SHAPES]
    with beside.daemon() as daemon:
        ends = {topic: broker.base_offsets(topic, 0)[-1] for topic in topics}
        daemon.wait_copied({f"{topic}-0": end - 1 for topic, end in ends.items()}, deadline_s=_COPY_DEADLINE_S)
        lab = Lab(root, broker, remote, tools, ends, rounds)
        stock, tierd = Server(broker.bootstrap, broker.pid(1)), Server(f"127.0.0.1:{port}", daemon.pid)
        figures = [figure for name in _SHAPES for figure in _hot(lab, name, stock, tierd)]
        figures += wake_ups_ms(broker, tierd.bootstrap, samples=50 * rounds)
    figures += [figure for name in _SHAPES for figure in _from_the_cache(lab, name, stock)]
    return figures + [figure for name in _SHAPES for figure in _from_the_store(lab, name, stock)]


def _hot(lab: Lab, name: str, stock: Server, tierd: Server) -> list[Figure]:
    """Read the local log by both in turns; a first round warms the tool and the page cache."""
    theirs, ours = list[Cost](), list[Cost]()
    for _ in range(lab.rounds + 1):
        theirs.append(lab.read(stock, _topic(name)))
        ours.append(lab.read(tierd, _topic(name)))
    return _contest(f"endpoint, {name} records, local log", theirs[1:], ours[1:])


def _from_the_cache(lab: Lab, name: str, stock: Server) -> list[Figure]:
    theirs, ours = list[Cost](), list[Cost]()
    with _tier_alone(lab) as (server, _):
        for _ in range(lab.rounds + 1):
            theirs.append(lab.read(stock, _topic(name)))
            ours.append(lab.read(server, _topic(name)))
    return _contest(f"endpoint, {name} records, chunk cache", theirs[1:], ours[1:])


def _from_the_store(lab: Lab, name: str, stock: Server) -> list[Figure]:
    """Read with empty caches in every round, and the same objects by a loop of ranged GETs."""
    theirs, ours, plain, cacheless = list[Cost](), list[Cost](), list[Cost](), list[Cost]()
    clients, loop, first_ms = list[PlainCost](), list[Cost](), list[float]()
    for _ in range(lab.rounds):
        theirs.append(lab.read(stock, _topic(name)))
        with _tier_alone(lab) as (server, _):
            first_ms.append(first_bytes_ms(server.bootstrap, _topic(name)))
            ours.append(lab.read(server, _topic(name)))
        with _tier_alone(lab) as (server, tier):
            begun_cpu_s = process_time()
            seconds, size_bytes = asyncio.run(_ranged_gets(tier, _topic(name)))
            loop.append(Cost(size_bytes / seconds, (process_time() - begun_cpu_s) / size_bytes * 1e9))
            plain.append(_plain_read(server, _topic(name), size_bytes, clients))
        with _tier_alone(lab, cache_bytes=0) as (server, _):
            cacheless.append(_plain_read(server, _topic(name), size_bytes, clients))
    client_cpu_s = median(each.client_cpu_s for each in clients)
    label = f"endpoint, {name} records, S3"
    return [
        *_contest(label, theirs, ours, goal=""),
        Figure(f"{label}: a client that decodes nothing", _rate(plain) / 1e6, "MB/s"),
        Figure(f"{label}: CPU of tierd for that client", _cpu(plain), "s/GB"),
        Figure(f"{label}: CPU of tierd for that client, without a cache", _cpu(cacheless), "s/GB"),
        Figure(f"{label}: CPU of that client", client_cpu_s / (size_bytes / 1e9), "s/GB"),
        Figure(f"{label}: loop of ranged GETs", _rate(loop) / 1e6, "MB/s"),
        Figure(f"{label}: CPU of the loop", _cpu(loop), "s/GB"),
        Figure(f"{label}: relative to the loop", _rate(plain) / _rate(loop), "ratio", ">= 0.8"),
        Figure(f"{label}: relative to the loop, without a cache", _rate(cacheless) / _rate(loop), "ratio", ">= 0.8"),
        Figure(f"{label}: first bytes, caches empty", median(first_ms), "ms"),
    ]


def _plain_read(server: Server, topic: str, size_bytes: int, clients: list[PlainCost]) -> Cost:
    """Read a topic with the client that decodes nothing; its own cost goes to ``clients``."""
    before_s = cpu_seconds(server.pid)
    clients.append(plain_fetches(server.bootstrap, topic))
    return Cost(size_bytes / clients[-1].seconds, (cpu_seconds(server.pid) - before_s) / (size_bytes / 1e9))


def _rate(costs: Sequence[Cost]) -> float:
    return median(cost.bytes_per_s for cost in costs)


def _cpu(costs: Sequence[Cost]) -> float:
    return median(cost.cpu_s_per_gb for cost in costs)


def _contest(label: str, theirs: Sequence[Cost], ours: Sequence[Cost], *, goal: str = ">= 0.8") -> list[Figure]:
    rate, stock_rate, cpu, stock_cpu = _rate(ours), _rate(theirs), _cpu(ours), _cpu(theirs)
    return [
        Figure(f"{label}: tierd", rate / 1e6, "MB/s"),
        Figure(f"{label}: stock broker, local log", stock_rate / 1e6, "MB/s"),
        Figure(f"{label}: relative to the broker", rate / stock_rate, "ratio", goal),
        Figure(f"{label}: CPU of tierd", cpu, "s/GB"),
        Figure(f"{label}: CPU of the broker", stock_cpu, "s/GB"),
    ]


@contextmanager
def _tier_alone(lab: Lab, **fetch: object) -> Iterator[tuple[Server, Installation]]:
    """Serve the tier from a host without log dirs, whose caches are empty at first."""
    folder = lab.root / "alone"
    tier, port = _installation(folder, [folder / "no-log-dir"], lab.remote)
    tier.configure({"fetch": fetch})
    with tier.daemon(verb=("serve", "--from-bucket", "--cluster-id", CLUSTER_ID)) as daemon:
        yield Server(f"127.0.0.1:{port}", daemon.pid), tier
    shutil.rmtree(folder)


def _installation(folder: Path, log_dirs: Sequence[Path], remote: Settings) -> tuple[Installation, int]:
    port = free_port()
    return Installation(folder, log_dirs, remote=remote, settings=endpoint_settings(port)), port


async def _ranged_gets(tier: Installation, topic: str) -> tuple[float, int]:
    """Read the stored logs of a topic, one GET after the other; return the seconds and the bytes."""
    config = load_config(tier.config_file, {})
    async with Deployment(config, tier.config_file).object_store(clock=SystemClock()) as store:
        stored = await store.list_objects("")
        logs = [info for info in stored if info.key.endswith(".log") and f"{topic}-" in info.key]
        begun_s = perf_counter()
        for info in logs:
            for position in range(0, info.size_bytes, _PIECE_BYTES):
                size_bytes = min(_PIECE_BYTES, info.size_bytes - position)
                await store.get(info.key, ByteRange.of_size(position, size_bytes))
        return perf_counter() - begun_s, sum(info.size_bytes for info in logs)


def _topic(name: str) -> str:
    return f"bench-{name.replace(' ', '-').lower()}"


def _fill(broker: KafkaBroker, topic: str, size_bytes: int, record_bytes: int) -> None:
    """Send records with the tool of Kafka, as its users do."""
    broker.create_topic(topic, segment_bytes=max(1 << 20, size_bytes // _SEGMENTS))
    command = [str(KAFKA_SCRIPT), "tool", "ProducerPerformance", "--topic", topic, "--throughput", "-1"]
    command += ["--num-records", str(size_bytes // record_bytes), "--record-size", str(record_bytes)]
    command += ["--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=1", "linger.ms=5"]
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    done = run(command, env=kafka_environment({"KAFKA_VERSION": _VERSION}))
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
