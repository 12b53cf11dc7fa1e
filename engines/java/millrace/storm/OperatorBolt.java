package millrace.storm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import millrace.Executor;
import millrace.Job;
import millrace.Operator;
import millrace.Reporter;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/** A bolt that runs an operator and counts the rows of every sender; the last field of a tuple is when it was due. */
public final class OperatorBolt extends BaseRichBolt {
    private static final String DUE = "__due";

    private final String component;
    private transient Executor executor;
    private transient Operator operator;
    private transient OutputCollector collector;
    private transient TopologyContext context;
    private transient Map<String, Executor.Channel[]> channels;
    private transient int tasks;

    OperatorBolt(String component) {
        this.component = component;
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext where, OutputCollector output) {
        executor = Placed.open(Job.read(), where);
        operator = Reporter.operator(executor);
        collector = output;
        context = where;
        channels = new HashMap<>();
        tasks = where.getTaskToComponent().keySet().stream().max(Integer::compare).orElse(0) + 1;
    }

    @Override
    public void execute(Tuple tuple) {
        try {
            String stream = tuple.getSourceStreamId();
            channel(tuple.getSourceTask(), stream).add();
            List<Object> values = tuple.getValues();
            long dueNs = (Long) values.get(values.size() - 1);
            Object[] row = values.subList(0, values.size() - 1).toArray();
            operator.process(tuple.getSourceComponent(), stream, row, (target, sent) -> {
                collector.emit(target, tuple, values(sent, dueNs));
                executor.sent(target);
            });
            collector.ack(tuple);
            executor.done(dueNs);
        } catch (RuntimeException fault) {
            Reporter.failed(fault);
            throw fault;
        }
    }

    private Executor.Channel channel(int task, String stream) {
        Executor.Channel[] known = channels.computeIfAbsent(stream, each -> new Executor.Channel[tasks]);
        if (known[task] == null) {
            known[task] = executor.channel(Placed.executor(context, task), stream);
        }
        return known[task];
    }

    static Values values(Object[] row, long dueNs) {
        Values values = new Values(row);
        values.add(dueNs);
        return values;
    }

    static void declare(Job.Component component, OutputFieldsDeclarer declarer) {
        for (Job.Output output : component.outputs()) {
            List<String> fields = new ArrayList<>(output.fields());
            fields.add(DUE);
            declarer.declareStream(output.stream(), new Fields(fields));
        }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declare(Job.read().component(component), declarer);
    }
}
