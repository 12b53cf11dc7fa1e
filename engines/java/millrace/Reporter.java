package millrace;

import java.io.BufferedWriter;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * Writes the totals of all executors of this process, once a second and at both ends of the measured interval.
 *
 * <p>A line has a kind, a time of the monotonic clock in nanoseconds, and fields, separated by tabs:
 * {@code open executor}; {@code sent executor stream rows}, {@code channel target source stream rows} and
 * {@code latency executor bucket_ns count} if they have changed; then
 * {@code totals executor processed records late due cpu_ns}, with an empty text for what there is not; {@code finished};
 * {@code failed text}.
 */
public final class Reporter {
    private static final long SECOND = 1_000_000_000L;
    private static final long POLL = 20_000_000L;
    private static Reporter only;

    private final Path folder;
    private final BufferedWriter out;
    private final List<Executor> executors = new CopyOnWriteArrayList<>();
    private final Map<Object, Long> written = new HashMap<>();
    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();

    private Reporter(Path folder, String node, int slot) throws IOException {
        this.folder = folder;
        String file = node + "-" + slot + "-" + ProcessHandle.current().pid() + ".tsv";
        out = Files.newBufferedWriter(folder.resolve("reports").resolve(file), StandardCharsets.UTF_8);
        Thread thread = new Thread(this::run, "millrace-reporter");
        thread.setDaemon(true);
        thread.start();
    }

    /** Register an executor of this process, which is worker `slot` of `node`; call it in the executor's own thread. */
    public static Executor open(Job job, String node, int slot, String component, int index) {
        Job.Component its = job.component(component);
        Executor executor = new Executor(its, index, its.isSpout() ? null : job.operator(its, index));
        synchronized (Reporter.class) {
            try {
                if (only == null) {
                    only = new Reporter(job.folder, node, slot);
                }
                only.line("open", System.nanoTime(), executor.name);
            } catch (IOException fault) {
                throw new java.io.UncheckedIOException(fault);
            }
            only.executors.add(executor);
        }
        return executor;
    }

    /** Report that an executor of this process has failed. */
    public static void failed(Throwable fault) {
        try {
            only.line("failed", System.nanoTime(), fault.toString().replaceAll("\\s", " "));
        } catch (IOException worse) {
            fault.addSuppressed(worse);
        }
    }

    /** Return the operator of an executor. */
    public static Operator operator(Executor executor) {
        return executor.operator;
    }

    private void run() {
        try {
            long next = System.nanoTime() + SECOND;
            boolean finished = false;
            while (!finished) {
                Thread.sleep(Math.max(1, Math.min(POLL, upcoming(next) - System.nanoTime()) / 1_000_000));
                if (Control.times() == null) {
                    Control.look(folder);
                }
                long now = System.nanoTime();
                finished = Control.isFinished(folder);
                if (finished || now >= upcoming(next)) {
                    Control.look(folder);
                    passMarks(now);
                    totals();
                    next = now >= next ? now + SECOND - (now - next) % SECOND : next;
                }
            }
            answers();
            line("finished", System.nanoTime());
        } catch (Exception fault) {
            failed(fault);
        }
    }

    private boolean begun;
    private boolean ended;

    /** The next time at which totals are written. */
    private long upcoming(long next) {
        Control.Times times = Control.times();
        if (times == null || ended) {
            return next;
        }
        return Math.min(next, begun ? times.measureEndNs() : times.measureStartNs());
    }

    private void passMarks(long now) {
        Control.Times times = Control.times();
        begun = times != null && now >= times.measureStartNs();
        ended = times != null && now >= times.measureEndNs();
    }

    private synchronized void line(String kind, long now, Object... fields) throws IOException {
        out.write(kind + "\t" + now);
        for (Object each : fields) {
            out.write("\t" + each);
        }
        out.write("\n");
        out.flush();
    }

    private synchronized void totals() throws IOException {
        StringBuilder lines = new StringBuilder();
        for (Executor executor : executors) {
            // First what is processed, then what has arrived: nothing is processed that has not arrived. Records come
            // before the rows that were sent for them, so that all rows of the last record are known with it.
            long now = System.nanoTime();
            long processed = executor.processed.get();
            Due due = executor.due;
            String records = due == null ? "" : Long.toString(due.records());
            String begin = "\t" + now + "\t" + executor.name + "\t";
            for (Executor.Channel channel : executor.channels.values()) {
                long rows = channel.rows.get();
                if (changed(channel, rows)) {
                    lines.append("channel").append(begin).append(channel.source).append('\t').append(channel.stream);
                    lines.append('\t').append(rows).append('\n');
                }
            }
            for (Executor.Channel channel : executor.sent) {
                long rows = channel.rows.get();
                if (changed(channel, rows)) {
                    lines.append("sent").append(begin).append(channel.stream).append('\t').append(rows).append('\n');
                }
            }
            for (int bucket = 0; executor.component.isSink() && bucket < Buckets.COUNT; bucket++) {
                long count = executor.latencies.get(bucket);
                if (count > 0 && changed(executor.name + bucket, count)) {
                    lines.append("latency").append(begin).append(Buckets.highest(bucket)).append('\t').append(count).append('\n');
                }
            }
            lines.append("totals").append(begin).append(processed).append('\t').append(records);
            lines.append('\t').append(due == null ? "" : due.lateNs());
            lines.append('\t').append(due == null ? "" : due.count(now));
            lines.append('\t').append(threads.getThreadCpuTime(executor.thread)).append('\n');
        }
        out.write(lines.toString());
        out.flush();
    }

    private boolean changed(Object key, long value) {
        Long before = written.put(key, value);
        return before == null || before != value;
    }

    private void answers() throws IOException {
        for (Executor executor : executors) {
            List<String> rows = executor.operator == null ? List.of() : executor.operator.answer();
            if (!rows.isEmpty()) {
                Path answer = folder.resolve("answers").resolve(executor.component.number() + "-" + executor.index + ".tsv");
                Path partial = answer.resolveSibling(answer.getFileName() + ".partial");
                Files.write(partial, rows, StandardCharsets.UTF_8);
                Files.move(partial, answer, StandardCopyOption.ATOMIC_MOVE);
            }
        }
    }
}
