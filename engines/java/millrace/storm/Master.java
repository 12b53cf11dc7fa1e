package millrace.storm;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import millrace.Job;
import org.apache.storm.StormSubmitter;
import org.apache.storm.daemon.nimbus.Nimbus;
import org.apache.storm.generated.ClusterSummary;
import org.apache.storm.generated.ExecutorSummary;
import org.apache.storm.generated.TopologyInfo;
import org.apache.storm.topology.BoltDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.tuple.Fields;
import org.apache.storm.utils.NimbusClient;
import org.apache.storm.utils.Utils;
import org.apache.storm.zookeeper.Zookeeper;
import net.minidev.json.JSONValue;

/**
 * ZooKeeper and Nimbus in one process, which also submits the topology of a job and follows its start.
 *
 * <p>Arguments: ZooKeeper's folder and port, the numbers of supervisors and of executors. The topology's configuration is JSON in `topology.json` of the job's folder. `placed.tsv` appears there when Nimbus has assigned every executor: its lines
 * have component, index, host and port.
 */
public final class Master {
    private static final long POLL_MS = 200;

    /** The topology's name, the only one here; names of runs may have characters that Storm refuses. */
    private static final String NAME = "millrace";

    private Master() {
    }

    public static void main(String[] arguments) {
        try {
            start(arguments);
        } catch (Exception fault) {
            fault.printStackTrace();
            Runtime.getRuntime().halt(1); // threads of Nimbus would go on
        }
    }

    private static void start(String[] arguments) throws Exception {
        Job job = Job.read();
        Zookeeper.mkInprocessZookeeper(arguments[0], Integer.valueOf(arguments[1]));
        Nimbus.launch(new Nimbus.StandaloneINimbus());
        Map<String, Object> conf = Utils.readStormConfig();
        try (NimbusClient client = connected(conf)) {
            int supervisors = Integer.parseInt(arguments[2]);
            for (ClusterSummary seen = client.getClient().getClusterInfo(); seen.get_supervisors_size() < supervisors;) {
                Thread.sleep(POLL_MS);
                seen = client.getClient().getClusterInfo();
            }
            submit(job);
            String id = client.getClient().getTopologySummaryByName(NAME).get_id();
            List<String> rows = new ArrayList<>();
            while (rows.isEmpty()) {
                Thread.sleep(POLL_MS);
                rows = placed(client.getClient().getTopologyInfo(id), Integer.parseInt(arguments[3]));
            }
            Path file = job.folder.resolve("placed.tsv");
            Path partial = Files.write(job.folder.resolve("placed.partial"), rows, StandardCharsets.UTF_8);
            Files.move(partial, file, StandardCopyOption.ATOMIC_MOVE);
        }
    }

    private static NimbusClient connected(Map<String, Object> conf) throws InterruptedException {
        while (true) {
            try {
                return NimbusClient.Builder.withConf(conf).build();
            } catch (RuntimeException notYet) {
                Thread.sleep(POLL_MS); // Nimbus is not the leader yet
            }
        }
    }

    private static void submit(Job job) throws Exception {
        @SuppressWarnings("unchecked")
        Map<String, Object> conf = (Map<String, Object>) JSONValue.parse(Files.readString(job.folder.resolve("topology.json")));
        TopologyBuilder builder = new TopologyBuilder();
        boolean acks = ((Number) conf.get("topology.acker.executors")).intValue() > 0;
        for (Job.Component component : job.components) {
            if (component.isSpout()) {
                builder.setSpout(component.id(), new SourceSpout(component.id(), acks), component.parallelism());
                continue;
            }
            BoltDeclarer bolt = builder.setBolt(component.id(), new OperatorBolt(component.id()), component.parallelism());
            for (Job.Input input : component.inputs()) {
                switch (input.grouping()) {
                    case "shuffle" -> bolt.shuffleGrouping(input.source(), input.stream());
                    case "local-or-shuffle" -> bolt.localOrShuffleGrouping(input.source(), input.stream());
                    case "fields" -> bolt.fieldsGrouping(input.source(), input.stream(), new Fields(input.fields()));
                    case "global" -> bolt.globalGrouping(input.source(), input.stream());
                    case "all" -> bolt.allGrouping(input.source(), input.stream());
                    default -> throw new IllegalArgumentException("grouping " + input.grouping());
                }
            }
        }
        StormSubmitter.submitTopology(NAME, conf, builder.createTopology());
    }

    /** Return a row per executor, or none as long as one of them has no slot. */
    private static List<String> placed(TopologyInfo info, int executors) {
        Map<String, List<ExecutorSummary>> components = new TreeMap<>();
        info.get_executors().forEach(each -> components.computeIfAbsent(each.get_component_id(), id -> new ArrayList<>()).add(each));
        List<String> rows = new ArrayList<>();
        components.forEach((component, all) -> {
            all.sort(Comparator.comparingInt(each -> each.get_executor_info().get_task_start()));
            for (int index = 0; index < all.size(); index++) {
                rows.add(component + "\t" + index + "\t" + all.get(index).get_host() + "\t" + all.get(index).get_port());
            }
        });
        return rows.size() < executors ? List.of() : rows;
    }
}
