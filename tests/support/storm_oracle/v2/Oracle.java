import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import net.minidev.json.JSONValue;
import org.apache.storm.metric.StormMetricsRegistry;
import org.apache.storm.scheduler.Cluster;
import org.apache.storm.scheduler.DefaultScheduler;
import org.apache.storm.scheduler.EvenScheduler;
import org.apache.storm.scheduler.IScheduler;
import org.apache.storm.scheduler.IsolationScheduler;
import org.apache.storm.scheduler.SchedulerAssignment;
import org.apache.storm.scheduler.SchedulerAssignmentImpl;
import org.apache.storm.scheduler.SupervisorDetails;
import org.apache.storm.scheduler.Topologies;
import org.apache.storm.scheduler.multitenant.MultitenantScheduler;
import org.apache.storm.scheduler.resource.ResourceAwareScheduler;
import org.apache.storm.scheduler.resource.normalization.NormalizedResources;
import org.apache.storm.scheduler.resource.normalization.ResourceMetrics;

/** Storm 2.8: five schedulers answer {@link Rounds}. */
public final class Oracle implements Rounds.Version {
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
        Rounds.answer(new Oracle());
    }

    @Override
    @SuppressWarnings("unchecked")
    public Map<String, Object> parsed(String line) throws Exception {
        return (Map<String, Object>) JSONValue.parseWithException(line);
    }

    @Override
    public String written(Map<String, Object> answer) {
        return JSONValue.toJSONString(answer);
    }

    @Override
    public Cluster scheduled(Map<String, Object> round, Map<String, Object> conf) throws Exception {
        Map<String, SupervisorDetails> supervisors = new HashMap<>();
        for (Map<String, Object> node : StormRound.list(round.get("nodes"))) {
            String id = (String) node.get("id");
            supervisors.put(id, new SupervisorDetails(
                id, (String) node.get("host"), null, Rounds.numbers(node.get("ports")),
                NormalizedResources.RESOURCE_NAME_NORMALIZER.normalizedResourceMap(Rounds.resources(node))));
        }
        Map<String, SchedulerAssignment> running = new HashMap<>();
        Rounds.running(round).forEach((id, slots) -> running.put(id, new SchedulerAssignmentImpl(id, slots, null, null)));
        StormMetricsRegistry metrics = new StormMetricsRegistry();
        Topologies all = new Topologies(Rounds.topologies(round, conf));
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
        return cluster;
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
