// Kafka's own dump tool over many files in one process, for tests: see tests/services/kafka_dump.py.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;

public class DumpHarness {
    // Argument: the class of the tool. Each line of the input: files, with commas between them.
    public static void main(String[] args) throws Exception {
        Method tool = Class.forName(args[0]).getMethod("main", String[].class);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String files = input.readLine(); files != null; files = input.readLine()) {
            tool.invoke(null, (Object) new String[] {"--deep-iteration", "--print-data-log", "--files", files});
        }
        System.out.println("Dumping ended");
    }
}
