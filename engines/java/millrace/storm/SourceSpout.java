package millrace.storm;

import java.util.Map;
import millrace.Due;
import millrace.Executor;
import millrace.Job;
import millrace.Reporter;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Values;

/** A spout that emits the records of a source when they are due; with ackers, every row has an id. */
public final class SourceSpout extends BaseRichSpout {
    private final String component;
    private final boolean acks;
    private transient Executor executor;
    private transient Due due;
    private transient SpoutOutputCollector collector;
    private transient long id;

    SourceSpout(String component, boolean acks) {
        this.component = component;
        this.acks = acks;
    }

    @Override
    public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector output) {
        Job job = Job.read();
        executor = Placed.open(job, context);
        due = new Due(job, executor);
        collector = output;
    }

    @Override
    public void nextTuple() {
        if (due.waitNs() != 0) {
            return; // Storm waits by its own strategy
        }
        long dueNs = due.dueNs();
        try {
            due.emit((stream, row) -> {
                Values values = OperatorBolt.values(row, dueNs);
                if (acks) {
                    collector.emit(stream, values, id++);
                } else {
                    collector.emit(stream, values);
                }
                executor.sent(stream);
            });
        } catch (RuntimeException fault) {
            Reporter.failed(fault);
            throw fault;
        }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        OperatorBolt.declare(Job.read().component(component), declarer);
    }
}
