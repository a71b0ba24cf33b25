"""Producers that stay open while the disk of a broker is lost and restored."""

import base64
import time
from random import Random

from tests.scenarios.broker_steps import Oracle
from tests.services.kafka_journalled import JournalledProducer
from tests.services.kafka_records import SentRecord

IDEMPOTENT, TRANSACTIONAL = "idempotent", "transactional"
_BURST = 20


class LivingProducers:
    """Idempotent and transactional producer, each of which keeps its id until the brokers refuse it.

    Attributes:
        acknowledged: values of the records that the brokers took and committed, by partition and offset.
    """

    def __init__(self, bootstrap: str, *, seed: int) -> None:
        self.acknowledged: dict[str, dict[int, bytes]] = {}
        self.forget()
        self._idempotent = JournalledProducer(bootstrap)
        self._transactional = JournalledProducer(bootstrap, transactional_id="living")
        self._random = Random(seed)

    def forget(self) -> None:
        """Expect nothing any more of what was acknowledged until now."""
        self.acknowledged = {f"{IDEMPOTENT}-0": {}, f"{TRANSACTIONAL}-0": {}}

    def send(self) -> None:
        """Send a burst to both topics, until the brokers have taken it: a refused one is sent once more."""
        for topic in (IDEMPOTENT, TRANSACTIONAL):
            records = self._records()
            for _ in range(2):
                if topic == IDEMPOTENT:
                    sent = self._idempotent.send(topic, 0, records)
                else:
                    sent = self._transactional.transact(topic, 0, records, commit=True)
                taken = {offset: record.value or b"" for offset, record in sent.acknowledged.items()}
                self.acknowledged[f"{topic}-0"] |= taken
                if len(taken) == _BURST:
                    break
            else:
                raise AssertionError(f"{topic}: the brokers refused a burst twice: {sent.failed[:1]}")

    def assert_nothing_lost(self, found: Oracle) -> None:
        """Fail unless consumers of committed records read every acknowledged record at its offset, and once."""
        for name, acknowledged in self.acknowledged.items():
            assert acknowledged, f"{name}: nothing was acknowledged"
            values = {record["offset"]: base64.b64decode(record["value"] or "") for record in found[name][1]}
            missing = [offset for offset, value in acknowledged.items() if values.get(offset) != value]
            assert not missing, f"{name}: acknowledged records are not there: {missing[:5]}"
            times = sum(value in acknowledged.values() for value in values.values())
            assert times == len(acknowledged), f"{name}: {times} of {len(acknowledged)} acknowledged records"

    def _records(self) -> list[SentRecord]:
        now_ms = int(time.time() * 1000)
        return [
            SentRecord(key=None, value=self._random.randbytes(150).hex().encode(), timestamp_ms=now_ms)
            for _ in range(_BURST)
        ]
