// A real Kafka Streams application with one key-value store, which only restores it. Arguments: bootstrap servers, application
// id, input topic, state.dir. Its store is "store", in the task of partition 0 of the input.
// Standard output: "restored <start offset> <end offset> <records> <milliseconds>", as its restore listener was told.

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;

public final class StreamsStoreHarness {
    private static final long DEADLINE_MINUTES = 30;

    public static void main(final String[] arguments) throws Exception {
        final Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        final StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore("store"), Serdes.ByteArray(), Serdes.ByteArray()));
        builder.<byte[], byte[]>stream(arguments[2]).process(Idle::new, "store");
        final Restored restored = new Restored();
        final KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setGlobalStateRestoreListener(restored);
        streams.start();
        final boolean isDone = restored.done.await(DEADLINE_MINUTES, TimeUnit.MINUTES);
        streams.close(Duration.ofMinutes(DEADLINE_MINUTES));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            // A stopped application stays a member of its group, and the next run would wait for it.
            admin.removeMembersFromConsumerGroup(arguments[1], new RemoveMembersFromConsumerGroupOptions()).all().get();
        }
        if (!isDone) {
            throw new IllegalStateException("the store was not restored in time");
        }
    }

    /** Does nothing with its records. */
    private static final class Idle implements Processor<byte[], byte[], Void, Void> {
        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            context.getStateStore("store");
        }

        @Override
        public void process(final Record<byte[], byte[]> record) {
        }
    }

    /** Prints what was restored, and how long it took. */
    private static final class Restored implements StateRestoreListener {
        private final CountDownLatch done = new CountDownLatch(1);
        private long start;
        private long end;
        private long begun;

        @Override
        public void onRestoreStart(final TopicPartition partition, final String store, final long from, final long to) {
            start = from;
            end = to;
            begun = System.nanoTime();
        }

        @Override
        public void onBatchRestored(final TopicPartition partition, final String store, final long to, final long count) {
        }

        @Override
        public void onRestoreEnd(final TopicPartition partition, final String store, final long count) {
            final long taken = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun);
            System.out.println("restored " + start + " " + end + " " + count + " " + taken);
            done.countDown();
        }
    }
}
