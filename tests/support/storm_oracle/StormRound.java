import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.storm.generated.Bolt;
import org.apache.storm.generated.ComponentCommon;
import org.apache.storm.generated.ComponentObject;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.generated.Grouping;
import org.apache.storm.generated.NullStruct;
import org.apache.storm.generated.SpoutSpec;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.scheduler.ExecutorDetails;
import org.apache.storm.scheduler.INimbus;
import org.apache.storm.scheduler.IScheduler;
import org.apache.storm.scheduler.SupervisorDetails;
import org.apache.storm.scheduler.Topologies;
import org.apache.storm.scheduler.WorkerSlot;

/** The parts of a scheduling round that all versions of Storm describe alike: topologies, tasks and slots. */
final class StormRound {
    /** Present time, in seconds. */
    static final int NOW_S = 1_000_000;

    private StormRound() {
    }

    /** A topology as a scheduler gets it. */
    static final class Graph {
        String id;
        String user;
        int workers;
        int launchTime;
        Map<String, Object> conf;
        StormTopology topology;
        Map<ExecutorDetails, String> components;
    }

    /** Return the executor of one task. Its hash code, first + 13 * last task, is the task: schedulers read the first only. */
    static ExecutorDetails executor(int task) {
        return new ExecutorDetails(task, 0);
    }

    @SuppressWarnings("unchecked")
    static List<Map<String, Object>> list(Object value) {
        return (List<Map<String, Object>>) value;
    }

    @SuppressWarnings("unchecked")
    static void put(Map<String, Object> conf, Object settings) {
        conf.putAll((Map<String, Object>) settings);
    }

    static List<Graph> graphs(Map<String, Object> round, Map<String, Object> daemon) {
        List<Graph> found = new ArrayList<>();
        for (Map<String, Object> topology : list(round.get("topologies"))) {
            Graph graph = new Graph();
            graph.id = (String) topology.get("id");
            graph.user = (String) topology.get("user");
            graph.workers = ((Number) topology.get("workers")).intValue();
            graph.launchTime = NOW_S - ((Number) topology.get("uptime")).intValue();
            graph.conf = new HashMap<>(daemon);
            put(graph.conf, topology.get("conf"));
            graph.conf.put("topology.name", graph.id);
            graph.conf.put("topology.submitter.user", graph.user);
            graph.components = new HashMap<>();
            graph.topology = new StormTopology(new HashMap<>(), new HashMap<>(), new HashMap<>());
            int task = 0;
            for (Map<String, Object> component : list(topology.get("components"))) { // in the order of ids
                String id = (String) component.get("id");
                for (int at = 0; at < ((Number) component.get("parallelism")).intValue(); at++) {
                    graph.components.put(executor(++task), id);
                }
                if (id.startsWith("__")) {
                    continue; // Nimbus adds executors of system components, not the components
                }
                ComponentCommon common = new ComponentCommon(inputs(component), new HashMap<>());
                common.set_json_conf(String.format(java.util.Locale.ROOT,
                    "{\"topology.component.cpu.pcore.percent\": %s, \"topology.component.resources.onheap.memory.mb\": %s,"
                        + " \"topology.component.resources.offheap.memory.mb\": %s}",
                    ((Number) component.get("cpu")).doubleValue(),
                    ((Number) component.get("onheap")).doubleValue(),
                    ((Number) component.get("offheap")).doubleValue()));
                if (component.get("kind").equals("spout")) {
                    graph.topology.get_spouts().put(id, new SpoutSpec(new ComponentObject(), common));
                } else {
                    graph.topology.get_bolts().put(id, new Bolt(new ComponentObject(), common));
                }
            }
            found.add(graph);
        }
        return found;
    }

    private static Map<GlobalStreamId, Grouping> inputs(Map<String, Object> component) {
        Map<GlobalStreamId, Grouping> inputs = new HashMap<>();
        for (Map<String, Object> input : list(component.get("inputs"))) {
            inputs.put(new GlobalStreamId((String) input.get("from"), (String) input.get("stream")),
                grouping((String) input.get("grouping")));
        }
        return inputs;
    }

    private static Grouping grouping(String name) {
        switch (name) {
            case "shuffle": return Grouping.shuffle(new NullStruct());
            case "local-or-shuffle": return Grouping.local_or_shuffle(new NullStruct());
            case "all": return Grouping.all(new NullStruct());
            case "direct": return Grouping.direct(new NullStruct());
            case "global": return Grouping.fields(new ArrayList<>());
            case "fields": return Grouping.fields(new ArrayList<>(Collections.singleton("key")));
            default: throw new IllegalArgumentException(name);
        }
    }

    /** The callbacks that a cluster wants; only host names matter. */
    static final class Nimbus implements INimbus {
        @Override
        @SuppressWarnings("rawtypes")
        public void prepare(Map conf, String folder) {
        }

        @Override
        public Collection<WorkerSlot> allSlotsAvailableForScheduling(
            Collection<SupervisorDetails> supervisors, Topologies topologies, Set<String> missing) {
            return null;
        }

        @Override
        public void assignSlots(Topologies topologies, Map<String, Collection<WorkerSlot>> slots) {
        }

        @Override
        public String getHostName(Map<String, SupervisorDetails> supervisors, String node) {
            return supervisors.containsKey(node) ? supervisors.get(node).getHost() : null;
        }

        @Override
        public IScheduler getForcedScheduler() {
            return null;
        }
    }
}
