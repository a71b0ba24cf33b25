"""What the house rules allow, with the reason for each: for the name of a rule, subjects as findings give them.

``name.*`` stands for every subject below ``name``. An exception that allows nothing any more is a fault too.
"""

_OF_PLUGINS = "for packages with a backend of their own (docs/backends.md)"

_TO_JOIN = "still to join its importer (issue 14)"

EXCEPTIONS: dict[str, dict[str, str]] = {
    "large_constructor": {
        "BatchBuilder": "the fields of a batch header, in the words of the format",
    },
    "import_past_the_door": {
        "tierd.cli.commands.check_config -> tierd.app.access_policy": "the check of the file alone loads no backend",
    },
    "small_file": {
        "tierd.app.fetching": _TO_JOIN,
        "tierd.app.policy_changes": _TO_JOIN,
        "tierd.app.readiness": _TO_JOIN,
        "tierd.app.snapshot": _TO_JOIN,
        "tierd.cli.commands.run": "each verb of the command line has a file of its own",
        "tierd.metadata.kv.sqlite_errors": _TO_JOIN,
        "tierd.pipeline.jobs.exit_codes": "read by processes that start a job and do not import pyspark",
        "tierd.remote.segments.early_reads": "a class with tests of its own; segment_reader has no room for it",
        "tierd.tiering.auditing.local_history": _TO_JOIN,
        "tierd.tiering.copying.delay": _TO_JOIN,
        "tierd.tiering.local.aborted_data": _TO_JOIN,
        "tierd.tiering.local.stable": _TO_JOIN,
        "tierd.tiering.reading.aborted_lookup": _TO_JOIN,
        "tierd.tiering.removing.believed_clock": _TO_JOIN,
    },
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
