// Kafka's own command line tools, any number of runs in one process, for tests: see tests/services/kafka_clients/java_tools.py.
//
// Standard input: for each run the number of its fields, and the fields, each with its size in front: the class of the tool, its
// standard input, and its arguments. Standard output: the exit code, the standard output and the standard error of the run.
// Numbers have four bytes. The classes of the tools are loaded anew for each run, since they keep counters in static fields;
// the client library below them is not.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

import org.apache.kafka.common.utils.Exit;

public final class ToolHarness {
    // The same streams for all runs: Scala's library keeps those that it finds first.
    private static final ByteArrayOutputStream OUTPUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERRORS = new ByteArrayOutputStream();
    // What a tool does at its end: the console producer of Kafka 4 sends its last records there.
    private static final List<Runnable> HOOKS = new CopyOnWriteArrayList<>();
    private static volatile int exitCode;
    private static volatile boolean hasEnded;

    public static void main(final String[] arguments) throws Exception {
        final DataInputStream orders = new DataInputStream(System.in);
        final DataOutputStream answers = new DataOutputStream(System.out);
        System.setOut(new PrintStream(OUTPUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERRORS, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(ToolHarness::exit);
        Exit.setHaltProcedure(ToolHarness::exit);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        while (true) {
            final byte[][] fields = read(orders);
            if (fields == null) {
                System.exit(0); // threads of a tool may be left
            }
            run(fields, answers);
        }
    }

    private static byte[][] read(final DataInputStream orders) throws IOException {
        final byte[][] fields;
        try {
            fields = new byte[orders.readInt()][];
        } catch (final EOFException end) {
            return null;
        }
        for (int n = 0; n < fields.length; n++) {
            fields[n] = orders.readNBytes(orders.readInt());
        }
        return fields;
    }

    private static void run(final byte[][] fields, final DataOutputStream answers) throws IOException {
        System.setIn(new ByteArrayInputStream(fields[1]));
        exitCode = 0;
        hasEnded = false;
        final String[] arguments = new String[fields.length - 2];
        for (int n = 0; n < arguments.length; n++) {
            arguments[n] = new String(fields[n + 2], StandardCharsets.UTF_8);
        }
        final ClassLoader before = Thread.currentThread().getContextClassLoader();
        try {
            final ClassLoader fresh = new FreshTools(before);
            Thread.currentThread().setContextClassLoader(fresh);
            fresh.loadClass(new String(fields[0], StandardCharsets.UTF_8))
                .getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (final InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                failure.getCause().printStackTrace();
                exitCode = 1;
            }
        } catch (final ReflectiveOperationException failure) {
            failure.printStackTrace();
            exitCode = 127;
        } finally {
            HOOKS.forEach(Runnable::run);
            HOOKS.clear();
            Thread.currentThread().setContextClassLoader(before);
        }
        System.out.flush();
        System.err.flush();
        answers.writeInt(exitCode);
        for (final byte[] part : new byte[][] {taken(OUTPUT), taken(ERRORS)}) {
            answers.writeInt(part.length);
            answers.write(part);
        }
        answers.flush();
    }

    private static byte[] taken(final ByteArrayOutputStream stream) {
        synchronized (stream) {
            final byte[] content = stream.toByteArray();
            stream.reset();
            return content;
        }
    }

    private static void exit(final int status, final String message) {
        if (!hasEnded) { // a tool that catches what this throws ends a second time, with a code for unknown errors
            hasEnded = true;
            exitCode = status;
        }
        throw new Ended();
    }

    private static final class Ended extends Error {
    }

    /** Loads the classes of the tools again, and takes all others from its parent. */
    private static final class FreshTools extends ClassLoader {
        FreshTools(final ClassLoader parent) {
            super(parent);
        }

        @Override
        protected Class<?> loadClass(final String name, final boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") && !name.startsWith("kafka.tools.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                final Class<?> known = findLoadedClass(name);
                return known != null ? known : defined(name);
            }
        }

        private Class<?> defined(final String name) throws ClassNotFoundException {
            try (InputStream code = getResourceAsStream(name.replace('.', '/') + ".class")) {
                if (code == null) {
                    throw new ClassNotFoundException(name);
                }
                final byte[] bytes = code.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (final IOException failure) {
                throw new ClassNotFoundException(name, failure);
            }
        }
    }
}
