package millrace.flink;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import millrace.Job;
import org.apache.flink.api.common.operators.SlotSharingGroup;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * The topology of a job on Flink's DataStream API; argument: Flink's REST address.
 *
 * <p>Each component has a slot-sharing group of its own, which asks for one piece of the external resource of its name:
 * slots that offer one are where the placement has an executor (`engines/flink/configuration.py`). Groups of their own
 * also keep Flink from chaining operators.
 */
public final class FlinkJob {
    private final Job job = Job.read();
    private final StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
    private final Map<String, SingleOutputStreamOperator<Message>> made = new HashMap<>();

    private FlinkJob() {
    }

    /** Run the job in the JobManager, write where its subtasks are, and wait for its end. */
    public static void main(String[] arguments) throws Exception {
        FlinkJob mine = new FlinkJob();
        mine.job.components.forEach(mine::make);
        JobClient running = mine.environment.executeAsync(mine.job.text("run"));
        new Placed(arguments[0] + "/jobs/" + running.getJobID()).write(mine.job.folder.resolve("placed.tsv"));
        running.getJobExecutionResult().get();
    }

    /** Return the stream of a component; make those that it receives from first. */
    private SingleOutputStreamOperator<Message> make(Job.Component component) {
        SingleOutputStreamOperator<Message> known = made.get(component.id());
        if (known != null) {
            return known;
        }
        SingleOutputStreamOperator<Message> stream = component.isSpout() ? source(component) : bolt(component);
        stream.name(component.id()).uid(component.id()).setParallelism(component.parallelism()).slotSharingGroup(group(component));
        made.put(component.id(), stream);
        return stream;
    }

    private static SlotSharingGroup group(Job.Component component) {
        return SlotSharingGroup.newBuilder(component.id())
            .setCpuCores(1)
            .setTaskHeapMemoryMB(1)
            .setExternalResource("component" + component.number(), 1)
            .build();
    }

    private SingleOutputStreamOperator<Message> source(Job.Component component) {
        return environment.addSource(new FlinkSource(component.number()), component.id(), new Message.Type());
    }

    private SingleOutputStreamOperator<Message> bolt(Job.Component component) {
        DataStream<Message> all = component.inputs().stream().map(this::dealt).reduce(DataStream::union).orElseThrow();
        return all.transform(component.id(), new Message.Type(), new FlinkOperator(component.number()));
    }

    /** Return the rows of an input, dealt to subtasks by its grouping. */
    private DataStream<Message> dealt(Job.Input input) {
        Job.Component source = job.component(input.source());
        SingleOutputStreamOperator<Message> whole = make(source);
        int at = source.outputs().stream().map(Job.Output::stream).toList().indexOf(input.stream());
        DataStream<Message> rows = at == 0 ? whole : whole.getSideOutput(FlinkOperator.tag(source, input.stream()));
        return switch (input.grouping()) {
            case "shuffle" -> rows.rebalance();
            case "global" -> rows.global();
            case "all" -> rows.broadcast();
            case "fields" -> {
                List<String> names = source.outputs().get(at).fields();
                int[] fields = input.fields().stream().mapToInt(names::indexOf).toArray();
                yield rows.keyBy(message -> Message.key(message.row, fields), Types.STRING);
            }
            default -> throw new IllegalArgumentException("Flink has no grouping " + input.grouping());
        };
    }
}
