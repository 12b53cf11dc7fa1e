package millrace;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;

/** Executors that replay a load document (`engines/load.py`): its CPU per row, selectivities, bytes and keys. */
final class Replay {
    private Replay() {
    }

    /** Rows of one stream: a key by the measured shares, and as many bytes as the rows of the document have. */
    private static final class Stream {
        final String name;
        final double perRow;
        private final byte[] payload;
        private final double[] upTo;
        private final SplittableRandom random;
        private double owed;

        Stream(Job job, Job.Component component, int index, int at) {
            String key = "component." + component.number() + ".replay." + at + ".";
            name = component.outputs().get(at).stream();
            perRow = job.number(key + "selectivity", 1.0);
            payload = new byte[(int) job.whole(key + "payload")];
            upTo = Arrays.stream(job.text(key + "keys").split(" ")).mapToDouble(Double::parseDouble).toArray();
            Arrays.parallelPrefix(upTo, Double::sum);
            random = new SplittableRandom(job.whole("seed") * 1_000_003 + component.number() * 10_007L + index * 101L + at);
            random.nextBytes(payload);
        }

        /** Emit what rows so far have owed: selectivity is exact over time, and rows do not come in bursts. */
        void emit(Emitter out) {
            for (owed += perRow; owed >= 1.0 - 1e-9; owed -= 1.0) {
                int found = Arrays.binarySearch(upTo, random.nextDouble() * upTo[upTo.length - 1]);
                long key = Math.min(found < 0 ? -found - 1 : found + 1, upTo.length - 1);
                out.emit(name, key, payload);
            }
        }
    }

    private static List<Stream> streams(Job job, Job.Component component, int index) {
        List<Stream> streams = new ArrayList<>();
        for (int at = 0; at < component.outputs().size(); at++) {
            streams.add(new Stream(job, component, index, at));
        }
        return streams;
    }

    private static long operations(Job job, Job.Component component) {
        return Math.round(job.number("component." + component.number() + ".operations", 0.0));
    }

    /** One row on the spout's stream for each record. */
    static final class Source implements millrace.Source {
        private final List<Stream> streams;
        private final Work work = new Work();
        private final long operations;

        Source(Job job, Job.Component component, int index) {
            streams = streams(job, component, index);
            operations = operations(job, component);
        }

        @Override
        public void emit(long position, Emitter out) {
            work.spend(operations);
            streams.forEach(stream -> stream.emit(out));
        }
    }

    /** The CPU of a row, and what it causes. */
    static final class Operator implements millrace.Operator {
        private final List<Stream> streams;
        private final Work work = new Work();
        private final long operations;

        Operator(Job job, Job.Component component, int index) {
            streams = streams(job, component, index);
            operations = operations(job, component);
        }

        @Override
        public void process(String source, String stream, Object[] row, Emitter out) {
            work.spend(operations);
            streams.forEach(each -> each.emit(out));
        }
    }
}
