"""What the house rules allow, with the reason for each: for the name of a rule, subjects as findings give them.

``name.*`` stands for every subject below ``name``. An exception that allows nothing any more is a fault too.
"""

_OF_PLUGINS = "for packages with a backend of their own (docs/backends.md)"

_TO_JOIN = "still to join its importer (issue 14)"
_TO_CUT = "still to be cut: a frozen record of settings is missing (issue 14)"

EXCEPTIONS: dict[str, dict[str, str]] = {
    "large_constructor": {
        "LogManager": _TO_CUT,
        "UnifiedLog": _TO_CUT,
        "BatchBuilder": "the fields of a batch header, in the words of the format",
        "SegmentSurvey": _TO_CUT,
    },
    "small_file": {
        "tierd.cli.commands.run": "each verb of the command line has a file of its own",
        "tierd.cost.sampling": _TO_JOIN,
        "tierd.log.dirs.manager_create": _TO_JOIN,
        "tierd.log.loading.stray": _TO_JOIN,
        "tierd.log.producers.producer_replay": _TO_JOIN,
        "tierd.log.records.sequence": _TO_JOIN,
        "tierd.log.segments.segment_copy": _TO_JOIN,
        "tierd.metadata.kv.sqlite_errors": _TO_JOIN,
        "tierd.pipeline.erasing.words": _TO_JOIN,
        "tierd.pipeline.jobs.auditing": _TO_JOIN,
        "tierd.pipeline.jobs.exit_codes": _TO_JOIN,
        "tierd.pipeline.planning.segment_rows": _TO_JOIN,
        "tierd.pipeline.source.narrowing": _TO_JOIN,
        "tierd.remote.backends.s3.s3_upload_listing": _TO_JOIN,
        "tierd.remote.segments.early_reads": _TO_JOIN,
        "tierd.tiering.auditing.local_history": _TO_JOIN,
        "tierd.tiering.copying.delay": _TO_JOIN,
        "tierd.tiering.local.aborted_data": _TO_JOIN,
        "tierd.tiering.local.stable": _TO_JOIN,
        "tierd.tiering.reading.aborted_lookup": _TO_JOIN,
        "tierd.tiering.removing.believed_clock": _TO_JOIN,
    },
    "whole_configuration": {
        "tierd.config.*": "declares, loads and checks the file",
        "tierd.app.engine.compose": "composes the engine",
        "tierd.app.engine.deployment": "opens the stores that the file describes",
        "tierd.app.engine.host_caches": "composes the reads",
        "tierd.app.engine.tier_reader": "composes a reader of the tier",
        "tierd.app.spark.build_pipeline": "composes the pipeline of an engine",
        "tierd.app.commands.rebuild_metadata": "composes a rebuild",
        "tierd.app.commands.repair_tier": "composes the tools of a repair",
        "tierd.app.daemon.daemon": "composes the servers and the supervision",
        "tierd.app.daemon.config_change": "compares two configurations key by key",
        "tierd.app.daemon.reloader": "replaces the configuration in force",
        "tierd.app.checks.check_online": "tries everything that the file names",
        "tierd.cli.session": "loads the file for every command",
        "tierd.cli.commands.check_config": "checks the whole file",
        "tierd.cli.commands.demo": "prints where the demo keeps its files",
        "tierd.pipeline.access": "takes from the file what executors need",
        "tierd.pipeline.jobs.main": "loads the file for the job",
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
