import java.util.HashMap;
import java.util.Map;
import org.apache.storm.scheduler.Cluster;
import org.apache.storm.scheduler.SchedulerAssignmentImpl;
import org.apache.storm.scheduler.SupervisorDetails;
import org.apache.storm.scheduler.Topologies;
import org.apache.storm.scheduler.resource.ResourceAwareScheduler;
import org.apache.storm.shade.org.json.simple.JSONObject;
import org.apache.storm.shade.org.json.simple.JSONValue;

/** Storm 1.1: its resource-aware scheduler answers {@link Rounds}. */
public final class Oracle implements Rounds.Version {
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
        return JSONObject.toJSONString(answer);
    }

    @Override
    public Cluster scheduled(Map<String, Object> round, Map<String, Object> conf) {
        Map<String, SupervisorDetails> supervisors = new HashMap<>();
        for (Map<String, Object> node : StormRound.list(round.get("nodes"))) {
            String id = (String) node.get("id");
            supervisors.put(id, new SupervisorDetails(
                id, (String) node.get("host"), null, Rounds.numbers(node.get("ports")), Rounds.resources(node)));
        }
        Map<String, SchedulerAssignmentImpl> running = new HashMap<>();
        Rounds.running(round).forEach((id, slots) -> running.put(id, new SchedulerAssignmentImpl(id, slots)));
        Cluster cluster = new Cluster(new StormRound.Nimbus(), supervisors, running, conf);
        ResourceAwareScheduler scheduler = new ResourceAwareScheduler();
        scheduler.prepare(conf);
        scheduler.schedule(new Topologies(Rounds.topologies(round, conf)), cluster);
        return cluster;
    }
}
