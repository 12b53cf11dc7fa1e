package millrace;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;

/**
 * Emits an executor's records when they are due.
 *
 * <p>The file of due times has one whole number per record of all sources together: nanoseconds after their start, 8 bytes,
 * little-endian. The records of source i of n are i, i + n, i + 2n and so on. Sources end after the last record of the file,
 * or when the time is over.
 */
public final class Due {
    private final Executor executor;
    private final Source source;
    private final LongBuffer times;
    private final int first;
    private final int step;
    private final long own;
    private volatile long position;
    private volatile long lateNs;

    /** Open the source of an executor; `Reporter.open` has registered it. */
    public Due(Job job, Executor executor) {
        this.executor = executor;
        this.source = job.source(executor.component, executor.index);
        this.first = (int) job.whole("component." + executor.component.number() + ".share") + executor.index;
        this.step = (int) job.whole("shares");
        try (FileChannel file = FileChannel.open(job.file("due"))) {
            times = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size()).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
        own = Math.max(0, (times.capacity() - first + step - 1) / step);
        executor.due = this;
    }

    private long time(long record) {
        return times.get((int) (record * step + first));
    }

    /** Return nanoseconds until the next record is due: 0 if it is; -1 at the end, and a millisecond before the start. */
    public long waitNs() {
        Control.Times go = Control.times();
        if (go == null) {
            return 1_000_000;
        }
        long now = System.nanoTime();
        if (position == own || now >= go.stopNs()) {
            return -1;
        }
        return Math.max(0, go.startNs() + time(position) - now);
    }

    /** Emit the next record; only call it when one is due. */
    public void emit(Emitter out) {
        source.emit(position, out);
        lateNs = System.nanoTime() - Control.startNs() - dueNs();
        position = position + 1;
    }

    /** Return when the next record is due, in nanoseconds after the start of the sources: nodes have clocks of their own. */
    public long dueNs() {
        return time(position);
    }

    long lateNs() {
        return lateNs;
    }

    /** Return the number of own records that are due by now. */
    long count(long now) {
        Control.Times go = Control.times();
        if (go == null) {
            return 0;
        }
        long low = 0;
        for (long high = own; low < high; ) {
            long middle = (low + high) / 2;
            if (go.startNs() + time(middle) <= now) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }
}
