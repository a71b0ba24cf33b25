"""Session of Spark with given settings, which broadcasts a text from its input and waits.

The program prints the process id of its Java when the broadcast is there.
"""

import json
import sys
import warnings

from pyspark import SparkConf, SparkContext


def main() -> None:
    """Begin, broadcast, wait."""
    warnings.simplefilter("ignore")
    given = json.loads(sys.stdin.readline())
    conf = SparkConf()
    for name, value in given["settings"].items():
        conf.set(name, value)
    spark = SparkContext(conf=conf)
    spark.broadcast(given["text"])
    print(spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True)  # type: ignore[union-attr]
    sys.stdin.readline()
    spark.stop()


if __name__ == "__main__":
    main()
