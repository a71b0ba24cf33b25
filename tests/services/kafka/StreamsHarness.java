// A real Kafka Streams application for tests, started and stopped on command. Argument: bootstrap servers.
//
// Standard input: one command a line, "<application id> <input topic> <state.dir> <processing guarantee>". The application
// runs until it has committed the end of the input, and stops. An application whose id begins with "idle" has one more store,
// which it never writes. Standard output: for each store that its restore listener was told of
// "restored <store> <start offset> <end offset> <records>", then "stopped", or "failed <reason>".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

public final class StreamsHarness {
    private static final long DEADLINE_MS = 60_000;

    public static void main(final String[] arguments) throws Exception {
        final BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                final String[] command = line.split(" ");
                try {
                    run(admin, arguments[0], command[0], command[1], command[2], command[3]);
                    System.out.println("stopped");
                } catch (final Exception failure) {
                    failure.printStackTrace();
                    System.out.println("failed " + failure);
                }
            }
        }
    }

    private static void run(
        final Admin admin, final String bootstrap, final String id, final String input, final String stateDir, final String guarantee
    ) throws Exception {
        final Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, stateDir);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("fetch.max.wait.ms"), 50);
        final KafkaStreams streams = new KafkaStreams(topology(input, id.startsWith("idle")), settings);
        streams.setGlobalStateRestoreListener(new Restored());
        streams.start();
        try {
            waitForEndOfInput(admin, streams, id, new TopicPartition(input, 0));
        } finally {
            streams.close(Duration.ofMillis(DEADLINE_MS));
            // A stopped application stays a member of its group, and the next run would wait for it.
            admin.removeMembersFromConsumerGroup(id, new RemoveMembersFromConsumerGroupOptions()).all().get();
        }
    }

    private static void waitForEndOfInput(
        final Admin admin, final KafkaStreams streams, final String id, final TopicPartition input
    ) throws Exception {
        final long end = admin.listOffsets(Map.of(input, OffsetSpec.latest())).all().get().get(input).offset();
        final long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (System.currentTimeMillis() < deadline) {
            final OffsetAndMetadata committed =
                admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata().get().get(input);
            if (streams.state() == KafkaStreams.State.RUNNING && committed != null && committed.offset() >= end) {
                return;
            }
            if (streams.state() == KafkaStreams.State.ERROR) {
                throw new IllegalStateException("the application failed");
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("the application did not reach offset " + end);
    }

    private static Topology topology(final String input, final boolean withIdleStore) {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("plain"), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("marks", Duration.ofMinutes(10), Duration.ofMinutes(1), true),
            Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.versionedKeyValueStoreBuilder(
            Stores.persistentVersionedKeyValueStore("versions", Duration.ofMinutes(5), Duration.ofMinutes(2)),
            Serdes.String(), Serdes.String()));
        final KStream<String, String> words = builder.stream(input);
        if (withIdleStore) {
            builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore("idle"), Serdes.String(), Serdes.String()));
            words.process(Writer::new, "plain", "marks", "versions", "idle");
        } else {
            words.process(Writer::new, "plain", "marks", "versions");
        }
        final KGroupedStream<String, String> grouped = words.groupByKey();
        grouped.count(Materialized.as("counts"));
        grouped.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(1)))
            .count(Materialized.<String, Long, WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("windows")
                .withRetention(Duration.ofMinutes(10)));
        grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(30), Duration.ofMinutes(1)))
            .count(Materialized.<String, Long, org.apache.kafka.streams.state.SessionStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("sessions")
                .withRetention(Duration.ofMinutes(10)));
        return builder.build();
    }

    /** Writes each record into three stores; the value "-" deletes. */
    private static final class Writer implements Processor<String, String, Void, Void> {
        private KeyValueStore<String, String> plain;
        private WindowStore<String, String> marks;
        private VersionedKeyValueStore<String, String> versions;

        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            plain = context.getStateStore("plain");
            marks = context.getStateStore("marks");
            versions = context.getStateStore("versions");
        }

        @Override
        public void process(final Record<String, String> record) {
            final String value = record.value().equals("-") ? null : record.value();
            plain.put(record.key(), value);
            marks.put(record.key(), value, record.timestamp());
            versions.put(record.key(), value, record.timestamp());
        }
    }

    /** Prints what was restored. */
    private static final class Restored implements StateRestoreListener {
        private final Map<String, String> ranges = new ConcurrentHashMap<>();

        @Override
        public void onRestoreStart(final TopicPartition partition, final String store, final long start, final long end) {
            ranges.put(store, start + " " + end);
        }

        @Override
        public void onBatchRestored(final TopicPartition partition, final String store, final long end, final long count) {
        }

        @Override
        public void onRestoreEnd(final TopicPartition partition, final String store, final long count) {
            System.out.println("restored " + store + " " + ranges.get(store) + " " + count);
        }
    }
}
