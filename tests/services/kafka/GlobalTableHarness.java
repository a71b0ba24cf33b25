// A real Kafka Streams application that is one global table, for tests: see tests/services/kafka_clients/global_table.py.
//
// Arguments: bootstrap servers, topic, isolation level, state.dir. When the table has been filled, one line a key is printed, "key value"
// in Base64, and "filled" behind them.

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
        final Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "table-of-" + arguments[1]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        settings.put(StreamsConfig.globalConsumerPrefix("isolation.level"), arguments[2]);
        final StreamsBuilder builder = new StreamsBuilder();
        builder.globalTable(arguments[1], Consumed.with(Serdes.Bytes(), Serdes.ByteArray()),
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
