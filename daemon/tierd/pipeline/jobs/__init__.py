"""The job on Spark that carries out an order: ``python -m tierd.pipeline.jobs``, or ``__main__.py`` for spark-submit.

``Run`` is the driver's part; ``scanning`` and ``tasks`` run in Python workers; ``layout``, ``prospects`` and
``outcomes`` decide and are pure. Nothing here imports pyspark before it is asked for.
"""

__all__ = []
