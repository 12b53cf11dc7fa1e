package millrace;

import java.util.concurrent.locks.LockSupport;

/** An engine of one thread: a source, whose records take as long as the argument says, and a sink in the same process. */
final class PlainEngine {
    private PlainEngine() {
    }

    /** Run until the controller asks for the answers; the argument is the time per record in nanoseconds. */
    public static void main(String[] arguments) throws Exception {
        long recordNs = Long.parseLong(arguments[0]);
        Job job = Job.read();
        Executor source = Reporter.open(job, "n1", 0, "source", 0);
        Executor sink = Reporter.open(job, "n1", 0, "sink", 0);
        Due due = new Due(job, source);
        while (true) {
            long waitNs = due.waitNs();
            if (waitNs == 0) {
                long dueNs = due.dueNs();
                LockSupport.parkNanos(recordNs);
                due.emit((stream, row) -> {
                    source.sent(stream);
                    sink.channel(source.name, stream).add();
                    sink.done(dueNs);
                });
            } else {
                LockSupport.parkNanos(waitNs < 0 ? 10_000_000 : waitNs);
            }
        }
    }
}
