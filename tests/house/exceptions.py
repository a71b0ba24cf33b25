"""What the house rules allow, with the reason for each: for the name of a rule, subjects as findings give them.

``name.*`` stands for every subject below ``name``. An exception that allows nothing any more is a fault too.
"""

_OF_PLUGINS = "for packages with a backend of their own (docs/backends.md)"

EXCEPTIONS: dict[str, dict[str, str]] = {
    "unused_export": {
        "tierd.cli.main": "the entry point of the command tierd",
        "tierd.pipeline.register": "called by Spark's users (docs/spark.md)",
        "tierd.pipeline.source.*": "registration reads them as attributes, after the import of pyspark",
        "tierd.kernels.compiled.*": "kernels.choice imports the twins by name at run time",
        "tierd.kernels.reference.*": "kernels.choice imports the twins by name at run time",
        "tierd.testing.*": _OF_PLUGINS,
        "tierd.config.AbsolutePath": _OF_PLUGINS,
        "tierd.config.Address": _OF_PLUGINS,
        "tierd.config.ByteLimit": _OF_PLUGINS,
        "tierd.config.ByteSize": _OF_PLUGINS,
        "tierd.config.Duration": _OF_PLUGINS,
        "tierd.config.INTERFACE_VERSION": _OF_PLUGINS,
        "tierd.config.OwnPath": _OF_PLUGINS,
        "tierd.config.Switch": _OF_PLUGINS,
        "tierd.config.Text": _OF_PLUGINS,
        "tierd.config.Url": _OF_PLUGINS,
        "tierd.config.WholeNumber": _OF_PLUGINS,
        "tierd.metadata.MemoryKeyValueStore": _OF_PLUGINS,
        "tierd.metadata.MetadataConnector": _OF_PLUGINS,
        "tierd.metadata.MetadataOpening": _OF_PLUGINS,
        "tierd.remote.Body": _OF_PLUGINS,
        "tierd.remote.ObjectStoreConnector": _OF_PLUGINS,
    },
}
