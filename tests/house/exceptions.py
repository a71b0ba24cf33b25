"""Exceptions of the house rules, with the reason for each: for the name of a rule, subjects as findings give them.

``name.*`` stands for every subject below ``name``. An exception that allows nothing any more is a fault too.
"""

_OF_PLUGINS = "for packages with a backend of their own (docs/backends.md)"

EXCEPTIONS: dict[str, dict[str, str]] = {
    "large_constructor": {
        "BatchBuilder": "the fields of a batch header, in the words of the format",
    },
    "small_file": {
        "tierd.app.engine.process_epoch": "the epoch of the process on every protocol between daemons",
        "tierd.cli.commands.run": "a verb of the command line has a file of its own, or shares it with close verbs",
        "tierd.pipeline.jobs.exit_codes": "read by processes that start a job and have no pyspark",
        "tierd.remote.segments.early_reads": "a class with tests of its own; segment_reader has no room for it",
    },
    "whole_configuration": {
        "tierd.config.*": "declares, loads and checks the file",
        "tierd.app.engine.compose": "composes the engine",
        "tierd.app.engine.deployment": "opens the stores that the file describes",
        "tierd.app.engine.host_caches": "composes the reads",
        "tierd.app.engine.tier_reader": "composes a reader of the tier",
        "tierd.app.spark.build_pipeline": "composes the pipeline of an engine",
        "tierd.app.commands.rebuild_metadata": "composes a rebuild",
        "tierd.app.restore.topic_restore_job": "composes a restore into a live cluster",
        "tierd.app.commands.repair_tier": "composes the tools of a repair",
        "tierd.app.restore.log_dir_restore": "composes a restore into a log dir",
        "tierd.app.restore.restore_source": "opens the tier for a restore",
        "tierd.app.restore.standby_verify": "composes the comparison of standbys with the tier",
        "tierd.app.restore.store_restore": "composes a restore of state stores",
        "tierd.app.daemon.daemon": "composes the servers and the supervision",
        "tierd.app.daemon.daemon_endpoint": "asks if the read endpoint is on, before its modules are imported",
        "tierd.app.daemon.daemon_push": "asks if push replication is on, before its modules are imported",
        "tierd.app.daemon.endpoint_reload": "reads the file again",
        "tierd.app.daemon.tier_server": "composes the process of tierd serve",
        "tierd.app.endpoint.engine_endpoint": "composes the read endpoint of the daemon",
        "tierd.app.push.engine_push": "composes the push replication of the daemon",
        "tierd.app.daemon.config_change": "compares two configurations key by key",
        "tierd.app.daemon.reloader": "replaces the configuration in force",
        "tierd.app.checks.check_online": "tries everything that the file names",
        "tierd.cli.commands.check_config": "checks the whole file",
        "tierd.cli.commands.demo": "prints where the demo keeps its files",
        "tierd.pipeline.access": "takes from the file what executors need",
        "tierd.pipeline.jobs.job_main": "loads the file for the job",
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
        "tierd.config.INTERFACE_VERSION": _OF_PLUGINS,
        "tierd.config.OwnPath": _OF_PLUGINS,
        "tierd.config.Switch": _OF_PLUGINS,
        "tierd.config.Url": _OF_PLUGINS,
        "tierd.config.WholeNumber": _OF_PLUGINS,
        "tierd.metadata.MetadataConnector": _OF_PLUGINS,
        "tierd.metadata.MetadataOpening": _OF_PLUGINS,
        "tierd.remote.Body": _OF_PLUGINS,
        "tierd.restore.KafkaSource": "a part of the Python API of state stores (docs/state-stores.md)",
        "tierd.remote.ObjectStoreConnector": _OF_PLUGINS,
    },
}
