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
 * little-endian. The records of source i of n are i, i + n, i + 2n and so on. The file ends with the measured interval, and
 * sources end after its last record: one that is late still emits what was due.
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
        return position == own ? -1 : Math.max(0, go.startNs() + time(position) - System.nanoTime());
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

    /** Return the number of own records that have been emitted. */
    long records() {
        return position;
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
