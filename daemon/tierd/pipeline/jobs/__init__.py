"""Job on Spark that carries out an order: ``python -m tierd.pipeline.jobs``, or ``__main__.py`` for spark-submit.

``run`` is the driver's part; ``auditing``, ``scanning`` and ``tasks`` run in Python workers; ``layout``, ``prospects``
and ``outcomes`` decide and are pure. The package itself imports no pyspark.
"""

__all__ = []
