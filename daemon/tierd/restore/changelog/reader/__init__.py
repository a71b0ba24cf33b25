"""The reader that fills state stores from their changelogs, with the semantics of Kafka Streams from 2.6 on."""
