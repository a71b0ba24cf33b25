"""BrokerTopicConfigs: topics' settings from the brokers, asked for every minute as long as a caller reads them."""

import asyncio
import random as _random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from tierd.clock import Clock, wait_for_event
from tierd.config import KafkaConnectionSettings
from tierd.control.broker_connections import BACKOFF, BrokerConnections
from tierd.control.cluster_metadata import TopicConfig
from tierd.control.kafka_messages import describe_topic_configs
from tierd.errors import KafkaError

log = structlog.get_logger()

TOPIC_SETTINGS: Final = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
    }
)
"""Settings that are asked for; a broker leaves out those that its version does not have."""
_REFRESH_S: Final = 60.0
_JITTER: Final = 0.1
_SETTLE_S: Final = 0.1  # so that a thousand topics that appear at once are asked for together
_TOPICS_PER_REQUEST: Final = 250
_UNREAD_ROUNDS: Final = 10  # a topic that was not read for so many rounds is not asked for any more


class BrokerTopicConfigs:
    """A cache of topics' settings. A topic without an answer yet, or unknown to the brokers, has none."""

    def __init__(
        self,
        settings: KafkaConnectionSettings,
        *,
        cluster_id: str,
        clock: Clock,
        random: Callable[[], float] = _random.random,
        on_outcome: Callable[[KafkaError | None], None] = lambda _: None,
    ) -> None:
        """Keep the collaborators; no connection is made yet.

        Args:
            settings: how to connect.
            cluster_id: the log dirs'; brokers of another cluster are refused.
            clock: time.
            random: in [0, 1), for jitter.
            on_outcome: called after every round of questions: with the failure if no broker answered, else None.
        """
        self._on_outcome = on_outcome
        self._connections = BrokerConnections(settings, cluster_id=cluster_id, random=random)
        self._clock = clock
        self._random = random
        self._wanted: dict[str, int] = {}  # topic to rounds since it was read last
        self._known: dict[str, Mapping[str, str]] = {}
        self._new = asyncio.Event()
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        self._failure: KafkaError | None = None
        self._refused: dict[str, str] = {}

    def get(self, topic: str) -> Mapping[str, str] | None:
        """Return the topic's effective settings, None while no broker gave them; ask for them from now on."""
        if topic not in self._wanted:
            self._new.set()
        self._wanted[topic] = 0
        return self._known.get(topic)

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Call ``listener`` with the topics whose settings became known, changed or unknown; it must not block."""
        self._listeners.append(listener)

    @property
    def problem(self) -> str:
        """Return in one line why settings may be old or missing; empty when all are known."""
        if self._failure is not None:
            return f"topic settings cannot be asked for: {self._failure}"
        if self._refused:
            topic, error = next(iter(self._refused.items()))
            return f"{len(self._refused)} topics have no settings: {topic}: {error}"
        return ""

    async def run(self) -> None:
        """Ask every minute, and soon for a topic that was never read before; ends only when cancelled."""
        failures = 0
        while True:
            try:
                await self.refresh()
            except KafkaError as error:
                failures += 1
                if failures == 1:
                    log.warning("topic_settings_unknown", problem=str(error), remedy=error.remedy)
                await self._clock.sleep(BACKOFF.delay_s(failures, random=self._random))
            else:
                failures = 0
                await self._wait_for_round()

    async def refresh(self) -> frozenset[str]:
        """Ask for every topic that is read, and return those whose settings changed.

        The connection is closed afterwards. A cancellation leaves what was answered so far.

        Raises:
            KafkaError: no broker answered; known settings stay known.
        """
        self._new.clear()
        wanted = self._still_wanted()
        changed: set[str] = set()
        try:
            for at in range(0, len(wanted), _TOPICS_PER_REQUEST):
                request = describe_topic_configs(wanted[at : at + _TOPICS_PER_REQUEST], TOPIC_SETTINGS)
                changed |= self._take(await self._connections.call(request))
        except KafkaError as error:
            self._failure = error
            self._on_outcome(error)
            raise
        else:
            self._failure = None
            if wanted:  # else no broker was asked
                self._on_outcome(None)
        finally:
            self._connections.close()
            self._notify(changed)
        return frozenset(changed)

    def _still_wanted(self) -> Sequence[str]:
        for topic, rounds in list(self._wanted.items()):
            if rounds >= _UNREAD_ROUNDS:
                del self._wanted[topic]
                self._known.pop(topic, None)
                self._refused.pop(topic, None)
            else:
                self._wanted[topic] = rounds + 1
        return list(self._wanted)

    def _take(self, answers: Iterable[TopicConfig]) -> set[str]:
        changed = set()
        for answer in answers:
            if self._known.get(answer.topic) != answer.settings:
                changed.add(answer.topic)
            if answer.settings is None:
                # A topic of the same name may come; settings of the old one must not apply to it.
                self._known.pop(answer.topic, None)
                self._refused[answer.topic] = answer.error
            else:
                self._known[answer.topic] = answer.settings
                self._refused.pop(answer.topic, None)
        return changed

    def _notify(self, changed: set[str]) -> None:
        if changed:
            for listener in self._listeners:
                listener(frozenset(changed))

    async def _wait_for_round(self) -> None:
        if await wait_for_event(self._new, self._clock, _REFRESH_S * (1 - _JITTER + 2 * _JITTER * self._random())):
            await self._clock.sleep(_SETTLE_S)
