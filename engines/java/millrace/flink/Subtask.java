package millrace.flink;

import millrace.Executor;
import millrace.Job;
import millrace.Reporter;

/** An executor in this TaskManager, and its counters of received rows. */
final class Subtask {
    final Job job;
    final Job.Component component;
    final Executor executor;
    private final Executor.Channel[][] channels;

    /** Open executor `index` of a component, in its own thread. */
    Subtask(int component, int index) {
        job = Job.read();
        this.component = job.components.get(component);
        channels = new Executor.Channel[job.components.size()][];
        String node = System.getProperty("millrace.node");
        executor = Reporter.open(job, node, Integer.getInteger("millrace.slot"), this.component.id(), index);
    }

    /** Return the number of one of the component's streams. */
    int number(String stream) {
        int at = 0;
        while (!component.outputs().get(at).stream().equals(stream)) {
            at++;
        }
        return at;
    }

    /** Count a row that has arrived. */
    void received(Message message) {
        Job.Component source = job.components.get(message.component);
        int streams = source.outputs().size();
        if (channels[message.component] == null) {
            channels[message.component] = new Executor.Channel[source.parallelism() * streams];
        }
        int at = message.index * streams + message.stream;
        Executor.Channel[] known = channels[message.component];
        if (known[at] == null) {
            known[at] = executor.channel(source.executor(message.index), source.outputs().get(message.stream).stream());
        }
        known[at].add();
    }
}
