package millrace.flink;

import java.util.List;
import millrace.Emitter;
import millrace.Job;
import millrace.Operator;
import millrace.Reporter;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.OutputTag;

/** A bolt; its first stream is Flink's main output, each other one a side output. */
final class FlinkOperator extends AbstractStreamOperator<Message> implements OneInputStreamOperator<Message, Message> {
    private static final long serialVersionUID = 1L;

    private final int component;
    private transient Subtask subtask;
    private transient Operator operator;
    private transient Emitter emitter;
    private transient List<OutputTag<Message>> tags;
    private transient long dueNs;

    FlinkOperator(int component) {
        this.component = component;
    }

    @Override
    public void open() throws Exception {
        super.open();
        int index = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        subtask = new Subtask(component, index);
        operator = Reporter.operator(subtask.executor);
        tags = subtask.component.outputs().stream().map(each -> tag(subtask.component, each.stream())).toList();
        emitter = (stream, row) -> {
            int number = subtask.number(stream);
            subtask.executor.sent(stream);
            StreamRecord<Message> record = new StreamRecord<>(new Message(component, index, number, dueNs, row));
            if (number == 0) {
                output.collect(record);
            } else {
                output.collect(tags.get(number), record);
            }
        };
    }

    /** Return the side output of a stream. */
    static OutputTag<Message> tag(Job.Component component, String stream) {
        return new OutputTag<>(component.id() + "/" + stream, new Message.Type());
    }

    @Override
    public void processElement(StreamRecord<Message> record) {
        Message message = record.getValue();
        Job.Component source = subtask.job.components.get(message.component);
        dueNs = message.dueNs;
        try {
            subtask.received(message);
            operator.process(source.id(), source.outputs().get(message.stream).stream(), message.row, emitter);
            subtask.executor.done(dueNs);
        } catch (RuntimeException | Error fault) {
            Reporter.failed(fault);
            throw fault;
        }
    }
}
