// A real Kafka Streams application that is one global table, for tests: see tests/services/kafka_clients/global_table.py.
//
// Arguments: bootstrap servers, topic, state.dir, isolation levels. For each level in turn: when the table has been filled, one line a key
// is printed, "key value" in Base64, and "filled" behind them.

import java.time.Duration;
import java.util.Base64;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

public final class GlobalTableHarness {
    public static void main(final String[] arguments) throws Exception {
        for (int n = 3; n < arguments.length; n++) {
            fill(arguments[0], arguments[1], arguments[2], arguments[n]);
        }
    }

    private static void fill(final String bootstrap, final String topic, final String stateDir, final String isolation) throws Exception {
        final Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "table-of-" + topic + "-" + isolation);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, stateDir);
        settings.put(StreamsConfig.globalConsumerPrefix("isolation.level"), isolation);
        final StreamsBuilder builder = new StreamsBuilder();
        builder.globalTable(topic, Consumed.with(Serdes.Bytes(), Serdes.ByteArray()),
            Materialized.<Bytes, byte[], KeyValueStore<Bytes, byte[]>>as("table"));
        final KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        final CountDownLatch filled = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                filled.countDown();
            }
        });
        streams.start();
        if (!filled.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the table was not filled: " + streams.state());
        }
        final ReadOnlyKeyValueStore<Bytes, byte[]> table =
            streams.store(StoreQueryParameters.fromNameAndType("table", QueryableStoreTypes.<Bytes, byte[]>keyValueStore()));
        final Base64.Encoder base64 = Base64.getEncoder();
        try (KeyValueIterator<Bytes, byte[]> all = table.all()) {
            while (all.hasNext()) {
                final KeyValue<Bytes, byte[]> each = all.next();
                System.out.println(base64.encodeToString(each.key.get()) + " " + base64.encodeToString(each.value));
            }
        }
        System.out.println("filled");
        streams.close(Duration.ofSeconds(20));
    }
}
