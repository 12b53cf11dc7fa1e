import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import net.minidev.json.JSONValue;
import org.apache.storm.metric.StormMetricsRegistry;
import org.apache.storm.networktopography.AbstractDNSToSwitchMapping;
import org.apache.storm.scheduler.Cluster;
import org.apache.storm.scheduler.DefaultScheduler;
import org.apache.storm.scheduler.EvenScheduler;
import org.apache.storm.scheduler.ExecutorDetails;
import org.apache.storm.scheduler.IScheduler;
import org.apache.storm.scheduler.IsolationScheduler;
import org.apache.storm.scheduler.SchedulerAssignment;
import org.apache.storm.scheduler.SchedulerAssignmentImpl;
import org.apache.storm.scheduler.SupervisorDetails;
import org.apache.storm.scheduler.Topologies;
import org.apache.storm.scheduler.TopologyDetails;
import org.apache.storm.scheduler.WorkerSlot;
import org.apache.storm.scheduler.multitenant.MultitenantScheduler;
import org.apache.storm.scheduler.resource.ResourceAwareScheduler;
import org.apache.storm.scheduler.resource.normalization.ResourceMetrics;
import org.apache.storm.utils.Time;
import org.apache.storm.utils.Utils;

/**
 * Reads scheduling rounds, one JSON object per line, runs Storm's own scheduler on each, and prints its assignments.
 *
 * <p>Storm iterates hash maps in many places, so that its answer depends on hash codes. Tasks here have hash codes that
 * grow with the task (see {@link StormRound#executor}), and callers use names of one letter, whose hash codes grow, too.
 * Then Storm's maps iterate in ascending order, which is the order that our schedulers define.
 */
public final class Oracle {
    private static final String RAS = "org.apache.storm.scheduler.resource.strategies.";

    private Oracle() {
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

    /** Makes `Collections.shuffle` of isolation's hosts give the order of Storm's master branch, not a random one. */
    private static final class HostOrder extends Random {
        private final Cluster cluster;
        private List<String> now;
        private List<String> wanted;

        HostOrder(Cluster cluster) {
            this.cluster = cluster;
        }

        @Override
        public int nextInt(int bound) {
            if (now == null) {
                Map<String, Integer> slots = new HashMap<>();
                Map<String, Integer> free = new HashMap<>();
                cluster.getAssignableSlots().forEach(slot -> count(slots, cluster.getHost(slot.getNodeId())));
                cluster.getAvailableSlots().forEach(slot -> count(free, cluster.getHost(slot.getNodeId())));
                now = new ArrayList<>(slots.keySet());
                now.sort((one, other) -> slots.get(other) - slots.get(one));
                wanted = new ArrayList<>(slots.keySet());
                wanted.sort((one, other) -> {
                    int order = slots.get(other) - slots.get(one);
                    order = order != 0 ? order : free.getOrDefault(other, 0) - free.getOrDefault(one, 0);
                    return order != 0 ? order : one.compareTo(other);
                });
            }
            int at = now.indexOf(wanted.get(bound - 1));
            Collections.swap(now, at, bound - 1);
            return at;
        }
    }

    private static void count(Map<String, Integer> counts, String name) {
        counts.put(name, counts.getOrDefault(name, 0) + 1); // `merge` would order names of one bucket differently
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> defaults = Utils.readDefaultConfig();
        java.io.BufferedReader lines = new java.io.BufferedReader(
            new java.io.InputStreamReader(System.in, java.nio.charset.StandardCharsets.UTF_8));
        java.io.PrintStream answers = new java.io.PrintStream(System.out, false, "UTF-8");
        new Time.SimulatedTime(); // ages of topologies do not change while Storm decides
        Time.advanceTimeSecs(StormRound.NOW_S);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            @SuppressWarnings("unchecked")
            Map<String, Object> round = (Map<String, Object>) JSONValue.parseWithException(line);
            answers.println(JSONValue.toJSONString(scheduled(round, defaults)));
        }
        answers.flush();
        System.exit(0); // threads of schedulers
    }

    private static Map<String, Object> scheduled(Map<String, Object> round, Map<String, Object> defaults) throws Exception {
        Map<String, Object> conf = new HashMap<>(defaults);
        conf.put("storm.network.topography.plugin", Racks.class.getName());
        StormRound.put(conf, round.get("conf"));
        Racks.OF.clear();
        Map<String, SupervisorDetails> supervisors = new HashMap<>();
        for (Map<String, Object> node : StormRound.list(round.get("nodes"))) {
            Map<String, Double> resources = new HashMap<>();
            resources.put("supervisor.cpu.capacity", ((Number) node.get("cpu")).doubleValue());
            resources.put("supervisor.memory.capacity.mb", ((Number) node.get("memory")).doubleValue());
            String id = (String) node.get("id");
            String host = (String) node.get("host");
            @SuppressWarnings("unchecked")
            List<Number> ports = (List<Number>) node.get("ports");
            Racks.OF.put(host, (String) node.get("rack"));
            supervisors.put(id, new SupervisorDetails(id, host, null, ports,
                org.apache.storm.scheduler.resource.normalization.NormalizedResources.RESOURCE_NAME_NORMALIZER
                    .normalizedResourceMap(resources)));
        }
        Map<String, TopologyDetails> topologies = new HashMap<>();
        for (StormRound.Graph graph : StormRound.graphs(round, conf)) {
            topologies.put(graph.id, new TopologyDetails(
                graph.id, graph.conf, graph.topology, graph.workers, graph.components, graph.launchTime, graph.user));
        }
        Map<String, SchedulerAssignment> running = new HashMap<>();
        for (Map<String, Object> worker : StormRound.list(round.get("existing"))) {
            String id = (String) worker.get("topology");
            Map<ExecutorDetails, WorkerSlot> slots = running.containsKey(id)
                ? new HashMap<>(running.get(id).getExecutorToSlot()) : new HashMap<>();
            WorkerSlot slot = new WorkerSlot((String) worker.get("node"), (Number) worker.get("port"));
            @SuppressWarnings("unchecked")
            List<Number> tasks = (List<Number>) worker.get("tasks");
            tasks.forEach(task -> slots.put(StormRound.executor(task.intValue()), slot));
            running.put(id, new SchedulerAssignmentImpl(id, slots, null, null));
        }
        StormMetricsRegistry metrics = new StormMetricsRegistry();
        Topologies all = new Topologies(topologies);
        Cluster cluster = new Cluster(new StormRound.Nimbus(), new ResourceMetrics(metrics), supervisors, running, all, conf);
        IScheduler scheduler = scheduler((String) round.get("scheduler"));
        scheduler.prepare(conf, metrics);
        if (scheduler instanceof IsolationScheduler) {
            Field random = Collections.class.getDeclaredField("r");
            random.setAccessible(true);
            random.set(null, new HostOrder(cluster));
        }
        scheduler.schedule(all, cluster);
        scheduler.cleanup();
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

    private static IScheduler scheduler(String name) {
        switch (name) {
            case "even": return new EvenScheduler();
            case "default": return new DefaultScheduler();
            case "isolation": return new IsolationScheduler();
            case "multitenant": return new MultitenantScheduler();
            case "resource-aware": return new ResourceAwareScheduler();
            default: throw new IllegalArgumentException(name);
        }
    }
}
