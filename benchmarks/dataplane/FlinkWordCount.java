import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.StringTokenizer;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.util.Collector;

/**
 * WordCount on Flink: running count per word, two task managers, object reuse, checkpoints.
 *
 * <p>Arguments: a file of lines, and how often each of two sources reads its half.
 */
public final class FlinkWordCount {
    static final class Lines extends RichParallelSourceFunction<String> {
        private final String path;
        private final int loops;
        private volatile boolean running = true;

        Lines(String path, int loops) {
            this.path = path;
            this.loops = loops;
        }

        @Override
        public void run(SourceContext<String> context) throws Exception {
            List<String> lines = Files.readAllLines(Path.of(path), StandardCharsets.UTF_8);
            int index = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            for (int loop = 0; loop < loops && running; loop++) {
                for (int at = index; at < lines.size() && running; at += 2) {
                    synchronized (context.getCheckpointLock()) {
                        context.collect(lines.get(at));
                    }
                }
            }
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    static final class Split implements FlatMapFunction<String, String> {
        @Override
        public void flatMap(String line, Collector<String> out) {
            for (StringTokenizer words = new StringTokenizer(line); words.hasMoreTokens(); ) {
                out.collect(words.nextToken());
            }
        }
    }

    static final class Count extends KeyedProcessFunction<String, String, Tuple2<String, Integer>> {
        private transient ValueState<Integer> count;
        private final Tuple2<String, Integer> row = new Tuple2<>();

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.INT));
        }

        @Override
        public void processElement(String word, Context context, Collector<Tuple2<String, Integer>> out)
                throws Exception {
            Integer before = count.value();
            int now = before == null ? 1 : before + 1;
            count.update(now);
            row.f0 = word;
            row.f1 = now;
            out.collect(row);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("minicluster.number-of-taskmanagers", "2");
        configuration.setString("taskmanager.numberOfTaskSlots", "1");
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("execution.checkpointing.interval", arguments[2]);
        configuration.setString("execution.checkpointing.dir", "file://" + arguments[3]);
        configuration.setString("rest.port", "0");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        environment.addSource(new Lines(arguments[0], Integer.parseInt(arguments[1])))
                .returns(Types.STRING)
                .rebalance()
                .flatMap(new Split())
                .returns(Types.STRING)
                .keyBy(word -> word, Types.STRING)
                .process(new Count())
                .returns(Types.TUPLE(Types.STRING, Types.INT))
                .sinkTo(new DiscardingSink<>());
        environment.execute("word count");
    }
}
