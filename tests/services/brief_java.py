"""A Java that lives for seconds: one compiler and one collector, for the better ones cost more than they bring then."""

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SPARK_CONF = {"spark.driver.extraJavaOptions": OPTIONS}
"""The same as settings of Spark."""
