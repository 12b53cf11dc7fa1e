import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.storm.networktopography.AbstractDNSToSwitchMapping;
import org.apache.storm.scheduler.Cluster;
import org.apache.storm.scheduler.ExecutorDetails;
import org.apache.storm.scheduler.TopologyDetails;
import org.apache.storm.scheduler.WorkerSlot;
import org.apache.storm.utils.Time;
import org.apache.storm.utils.Utils;

/**
 * Reads scheduling rounds, one JSON object per line, runs Storm's own scheduler on each, and prints its assignments.
 *
 * <p>Storm iterates hash maps in many places, so that its answer depends on hash codes. Tasks here have hash codes that
 * grow with the task (see {@link StormRound#executor}), and callers use names of one letter, whose hash codes grow, too.
 * Then Storm's maps iterate in ascending order, which is the order that our schedulers define.
 */
public final class Rounds {
    private Rounds() {
    }

    /** What differs between versions of Storm. */
    interface Version {
        Map<String, Object> parsed(String line) throws Exception;

        String written(Map<String, Object> answer);

        /** Return the cluster after Storm has scheduled the round. */
        Cluster scheduled(Map<String, Object> round, Map<String, Object> conf) throws Exception;
    }

    /** Racks of hosts in the round that is scheduled; Storm asks a class by name. */
    public static final class Racks extends AbstractDNSToSwitchMapping {
        static final Map<String, String> OF = new HashMap<>();

        @Override
        public Map<String, String> resolve(List<String> names) {
            Map<String, String> racks = new LinkedHashMap<>();
            for (String name : names.stream().sorted().collect(Collectors.toList())) {
                racks.put(name, OF.get(name));
            }
            return racks;
        }
    }

    static void answer(Version version) throws Exception {
        @SuppressWarnings("unchecked")
        Map<String, Object> defaults = (Map<String, Object>) Utils.readDefaultConfig();
        java.io.BufferedReader lines = new java.io.BufferedReader(
            new java.io.InputStreamReader(System.in, java.nio.charset.StandardCharsets.UTF_8));
        java.io.PrintStream answers = new java.io.PrintStream(System.out, false, "UTF-8");
        new Time.SimulatedTime(); // ages of topologies do not change while Storm decides
        Time.advanceTimeSecs(StormRound.NOW_S);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> round = version.parsed(line);
            Map<String, Object> conf = new HashMap<>(defaults);
            conf.put("storm.network.topography.plugin", Racks.class.getName());
            StormRound.put(conf, round.get("conf"));
            Racks.OF.clear();
            for (Map<String, Object> node : StormRound.list(round.get("nodes"))) {
                Racks.OF.put((String) node.get("host"), (String) node.get("rack"));
            }
            answers.println(version.written(answer(version.scheduled(round, conf))));
        }
        answers.flush();
        System.exit(0); // threads of schedulers
    }

    private static Map<String, Object> answer(Cluster cluster) {
        Map<String, Object> assignments = new LinkedHashMap<>();
        cluster.getAssignments().forEach((id, assignment) -> {
            List<Object> rows = new ArrayList<>();
            assignment.getExecutorToSlot().forEach((executor, slot) ->
                rows.add(Arrays.asList(executor.getStartTask(), slot.getNodeId(), slot.getPort())));
            assignments.put(id, rows);
        });
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("assignments", assignments);
        answer.put("status", cluster.getStatusMap());
        return answer;
    }

    static Map<String, Double> resources(Map<String, Object> node) {
        Map<String, Double> resources = new HashMap<>();
        resources.put("supervisor.cpu.capacity", ((Number) node.get("cpu")).doubleValue());
        resources.put("supervisor.memory.capacity.mb", ((Number) node.get("memory")).doubleValue());
        return resources;
    }

    @SuppressWarnings("unchecked")
    static List<Number> numbers(Object value) {
        return (List<Number>) value;
    }

    static Map<String, TopologyDetails> topologies(Map<String, Object> round, Map<String, Object> conf) {
        Map<String, TopologyDetails> topologies = new HashMap<>();
        for (StormRound.Graph graph : StormRound.graphs(round, conf)) {
            topologies.put(graph.id, new TopologyDetails(
                graph.id, graph.conf, graph.topology, graph.workers, graph.components, graph.launchTime, graph.user));
        }
        return topologies;
    }

    /** Return the slots of running executors by topology. */
    static Map<String, Map<ExecutorDetails, WorkerSlot>> running(Map<String, Object> round) {
        Map<String, Map<ExecutorDetails, WorkerSlot>> running = new HashMap<>();
        for (Map<String, Object> worker : StormRound.list(round.get("existing"))) {
            WorkerSlot slot = new WorkerSlot((String) worker.get("node"), (Number) worker.get("port"));
            Map<ExecutorDetails, WorkerSlot> slots =
                running.computeIfAbsent((String) worker.get("topology"), id -> new HashMap<>());
            numbers(worker.get("tasks")).forEach(task -> slots.put(StormRound.executor(task.intValue()), slot));
        }
        return running;
    }
}
