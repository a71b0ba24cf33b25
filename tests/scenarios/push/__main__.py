"""Program ``python -m tests.scenarios.push``: losses of a host, as many as asked for; prints what each cost."""

import argparse
import tempfile
from pathlib import Path

from tests.scenarios.push.losing_hosts import lose_host_again_and_again
from tests.scenarios.push.loss_checks import Loss, report
from tests.scenarios.push.loss_lab import PROPERTIES, LossLab
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.kafka_cluster import KafkaBroker, require_kafka


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.push", description=__doc__)
    parser.add_argument("--moments", type=int, default=50, help="number of losses")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and of the traffic")
    parser.add_argument("--version", default="3.9.2", help="of Kafka")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: the temporary directory")
    options = parser.parse_args()
    require_kafka(options.version)
    losses: list[Loss] = []
    with tempfile.TemporaryDirectory(prefix="tierd-losses-", dir=options.dir) as folder, WarmTierd() as warm:
        root = Path(folder)
        broker = KafkaBroker(root / "kafka", version=options.version, properties=PROPERTIES, has_own_controller=True)
        with broker, LossLab(root, broker, warm) as lab:
            for loss in lose_host_again_and_again(lab, moments=options.moments, seed=options.seed):
                losses.append(loss)
                print(f"loss {len(losses)}: {loss.lost_ms:.0f} ms, {loss.records} records {loss.partition}", flush=True)
    print(report(losses))


if __name__ == "__main__":
    main()
