package millrace.flink;

import java.util.concurrent.locks.LockSupport;
import millrace.Due;
import millrace.Reporter;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;

/** A spout of one stream: emits each record when it is due, and then waits for its end, so that the job runs on. */
final class FlinkSource extends RichParallelSourceFunction<Message> {
    private static final long serialVersionUID = 1L;
    private static final long LONGEST_NS = 10_000_000L;

    private final int component;
    private volatile boolean running = true;

    FlinkSource(int component) {
        this.component = component;
    }

    @Override
    public void run(SourceContext<Message> context) throws Exception {
        int index = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        Subtask subtask = new Subtask(component, index);
        try {
            Due due = new Due(subtask.job, subtask.executor);
            while (running) {
                long waitNs = due.waitNs();
                if (waitNs == 0) {
                    long dueNs = due.dueNs();
                    synchronized (context.getCheckpointLock()) {
                        due.emit((stream, row) -> {
                            subtask.executor.sent(stream);
                            context.collect(new Message(component, index, 0, dueNs, row));
                        });
                    }
                } else {
                    LockSupport.parkNanos(waitNs < 0 ? LONGEST_NS : Math.min(waitNs, LONGEST_NS));
                }
            }
        } catch (Exception | Error fault) {
            if (running) {
                Reporter.failed(fault);
            }
            throw fault;
        }
    }

    @Override
    public void cancel() {
        running = false;
    }
}
