package millrace.storm;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.storm.metric.StormMetricsRegistry;
import org.apache.storm.scheduler.Cluster;
import org.apache.storm.scheduler.ExecutorDetails;
import org.apache.storm.scheduler.IScheduler;
import org.apache.storm.scheduler.SupervisorDetails;
import org.apache.storm.scheduler.Topologies;
import org.apache.storm.scheduler.TopologyDetails;
import org.apache.storm.scheduler.WorkerSlot;

/**
 * Assigns executors to the slots that the topology's configuration names: {@code millrace.places} has, for each executor
 * by name, its node and port.
 *
 * <p>Nothing is assigned before the supervisors of all these nodes are there: half a topology would start without the
 * rest, and Storm would call it running. Executors stay where they are when their node is lost; the run has failed then.
 */
public final class PinnedScheduler implements IScheduler {
    static final String PLACES = "millrace.places";

    @Override
    public void prepare(Map<String, Object> conf, StormMetricsRegistry metrics) {
    }

    @Override
    public void schedule(Topologies topologies, Cluster cluster) {
        Map<String, SupervisorDetails> supervisors = new HashMap<>();
        for (SupervisorDetails each : cluster.getSupervisors().values()) {
            supervisors.put(((Map<?, ?>) each.getSchedulerMeta()).get("node").toString(), each);
        }
        for (TopologyDetails topology : cluster.needsSchedulingTopologies()) {
            assign(topology, cluster, supervisors);
        }
    }

    private static void assign(TopologyDetails topology, Cluster cluster, Map<String, SupervisorDetails> supervisors) {
        @SuppressWarnings("unchecked")
        Map<String, String> places = (Map<String, String>) topology.getConf().get(PLACES);
        Map<WorkerSlot, List<ExecutorDetails>> slots = new HashMap<>();
        for (Map.Entry<String, List<ExecutorDetails>> component : byComponent(topology).entrySet()) {
            for (int index = 0; index < component.getValue().size(); index++) {
                String name = component.getKey() + "[" + index + "]";
                String place = places.get(name);
                if (place == null) {
                    cluster.setStatus(topology.getId(), "no place for " + name);
                    return;
                }
                int colon = place.lastIndexOf(':');
                SupervisorDetails supervisor = supervisors.get(place.substring(0, colon));
                if (supervisor == null) {
                    cluster.setStatus(topology.getId(), "waiting for the supervisor of " + place);
                    return;
                }
                WorkerSlot slot = new WorkerSlot(supervisor.getId(), Integer.parseInt(place.substring(colon + 1)));
                slots.computeIfAbsent(slot, each -> new ArrayList<>()).add(component.getValue().get(index));
            }
        }
        cluster.freeSlots(new ArrayList<>(cluster.getUsedSlotsByTopologyId(topology.getId())));
        slots.forEach((slot, executors) -> cluster.assign(slot, topology.getId(), executors));
        cluster.setStatus(topology.getId(), "Fully Scheduled");
    }

    /** Executors of each component, by their first task. */
    private static Map<String, List<ExecutorDetails>> byComponent(TopologyDetails topology) {
        Map<String, List<ExecutorDetails>> executors = new HashMap<>();
        topology.getExecutorToComponent().forEach(
            (executor, component) -> executors.computeIfAbsent(component, each -> new ArrayList<>()).add(executor));
        executors.values().forEach(each -> each.sort(Comparator.comparingInt(ExecutorDetails::getStartTask)));
        return executors;
    }

    @Override
    public Map<String, Map<String, Double>> config() {
        return Map.of();
    }
}
