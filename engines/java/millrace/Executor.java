package millrace;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * The counters of one executor. Its thread writes them, the reporter's thread reads them.
 *
 * <p>All are totals since the start. Writes are ordered, not volatile: a full barrier per row would be measurable.
 */
public final class Executor {
    /** Rows from one executor on one stream. */
    public static final class Channel {
        final String source;
        final String stream;
        final AtomicLong rows = new AtomicLong();

        Channel(String source, String stream) {
            this.source = source;
            this.stream = stream;
        }

        /** Count a row. */
        public void add() {
            Executor.add(rows);
        }
    }

    public final Job.Component component;
    public final int index;
    public final String name;
    final Channel[] sent;
    final AtomicLong processed = new AtomicLong();
    final AtomicLongArray latencies = new AtomicLongArray(Buckets.COUNT);
    final Map<String, Channel> channels = new ConcurrentHashMap<>();
    final long thread = Thread.currentThread().getId();
    final Operator operator;
    volatile Due due;

    Executor(Job.Component component, int index, Operator operator) {
        this.component = component;
        this.index = index;
        this.name = component.executor(index);
        this.operator = operator;
        sent = component.outputs().stream().map(each -> new Channel(name, each.stream())).toArray(Channel[]::new);
    }

    private static void add(AtomicLong counter) {
        counter.lazySet(counter.getPlain() + 1);
    }

    /** Return the counter of rows from an executor on a stream; keep it, looking it up takes time. */
    public Channel channel(String source, String stream) {
        return channels.computeIfAbsent(source + "\t" + stream, key -> new Channel(source, stream));
    }

    /** Count a row that was sent on a stream, to however many executors. */
    public void sent(String stream) {
        for (Channel each : sent) {
            if (each.stream.equals(stream)) {
                each.add();
            }
        }
    }

    /** Count a row that has been processed, which was due that long after the start; a sink measures the time since. */
    public void done(long dueNs) {
        if (component.isSink()) {
            int bucket = Buckets.of(System.nanoTime() - Control.startNs() - dueNs);
            latencies.lazySet(bucket, latencies.getPlain(bucket) + 1);
        }
        add(processed);
    }
}
