"""Java for processes of some seconds: one compiler and one collector, since better ones cost more than they save."""

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SPARK_CONF = {"spark.driver.extraJavaOptions": OPTIONS}
"""The same as settings of Spark."""
