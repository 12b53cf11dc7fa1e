package org.apache.flink.runtime.scheduler;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.resources.CPUResource;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.TaskManagerOptions.TaskManagerLoadBalanceMode;
import org.apache.flink.runtime.blocklist.BlockedTaskManagerChecker;
import org.apache.flink.runtime.clusterframework.types.AllocationID;
import org.apache.flink.runtime.clusterframework.types.ResourceID;
import org.apache.flink.runtime.clusterframework.types.ResourceProfile;
import org.apache.flink.runtime.instance.InstanceID;
import org.apache.flink.runtime.io.network.partition.ResultPartitionType;
import org.apache.flink.runtime.jobgraph.DistributionPattern;
import org.apache.flink.runtime.jobgraph.IntermediateDataSetID;
import org.apache.flink.runtime.jobgraph.IntermediateResultPartitionID;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.JobVertex;
import org.apache.flink.runtime.jobgraph.JobVertexID;
import org.apache.flink.runtime.jobmanager.scheduler.SlotSharingGroup;
import org.apache.flink.runtime.jobmaster.SlotRequestId;
import org.apache.flink.runtime.jobmaster.slotpool.PendingRequest;
import org.apache.flink.runtime.jobmaster.slotpool.PhysicalSlot;
import org.apache.flink.runtime.jobmaster.slotpool.TasksBalancedRequestSlotMatchingStrategy;
import org.apache.flink.runtime.resourcemanager.registration.TaskExecutorConnection;
import org.apache.flink.runtime.resourcemanager.slotmanager.DefaultResourceAllocationStrategy;
import org.apache.flink.runtime.resourcemanager.slotmanager.ResourceAllocationResult;
import org.apache.flink.runtime.scheduler.strategy.ConsumedPartitionGroup;
import org.apache.flink.runtime.scheduler.strategy.ExecutionVertexID;
import org.apache.flink.runtime.scheduler.strategy.SchedulingExecutionVertex;
import org.apache.flink.runtime.scheduler.strategy.SchedulingPipelinedRegion;
import org.apache.flink.runtime.scheduler.strategy.SchedulingResultPartition;
import org.apache.flink.runtime.scheduler.strategy.SchedulingTopology;
import org.apache.flink.runtime.scheduler.taskexecload.TaskExecutionLoad;
import org.apache.flink.runtime.slots.ResourceRequirement;
import org.apache.flink.runtime.taskexecutor.TaskExecutorGateway;
import org.apache.flink.runtime.taskmanager.TaskManagerLocation;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Reads jobs, one JSON object per line, has Flink's own classes share and allocate slots, and prints what they answer.
 *
 * <p>It is in Flink's package because the strategies of slot sharing are not public.
 */
public final class FlinkOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ResourceProfile SLOT = profile(1);

    private FlinkOracle() {
    }

    private static ResourceProfile profile(int slots) {
        return slots == 0
                ? ResourceProfile.ZERO
                : ResourceProfile.newBuilder().setCpuCores(slots).setTaskHeapMemoryMB(100 * slots).build();
    }

    /** An instance of an interface, of which only these methods are called. */
    private static Object stub(Class<?> type, Map<String, Object> answers) {
        return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, arguments) -> {
            switch (method.getName()) {
                case "hashCode":
                    return System.identityHashCode(self);
                case "equals":
                    return self == arguments[0];
                default:
                    if (!answers.containsKey(method.getName())) {
                        throw new UnsupportedOperationException(method.toString());
                    }
                    return answers.get(method.getName());
            }
        });
    }

    /** A job as the scheduler sees it: every subtask of a vertex may send to every one of a vertex that receives it. */
    private static final class Job implements SchedulingTopology {
        final Map<JobVertexID, String> names = new HashMap<>();
        final SlotSharingGroup group = new SlotSharingGroup();
        final List<JobVertex> order;
        private final Map<ExecutionVertexID, SchedulingExecutionVertex> vertices = new LinkedHashMap<>();
        private final Map<IntermediateResultPartitionID, SchedulingResultPartition> partitions = new HashMap<>();

        Job(JsonNode components) {
            Map<String, JobVertex> byName = new LinkedHashMap<>();
            for (JsonNode component : components) {
                JobVertex vertex = new JobVertex(component.get("id").asText());
                vertex.setParallelism(component.get("parallelism").asInt());
                byName.put(vertex.getName(), vertex);
                names.put(vertex.getID(), vertex.getName());
                group.addVertexToGroup(vertex.getID());
            }
            Map<JobVertex, List<JobVertex>> inputs = new HashMap<>();
            for (JsonNode component : components) {
                JobVertex vertex = byName.get(component.get("id").asText());
                inputs.put(vertex, new ArrayList<>());
                for (JsonNode input : component.get("inputs")) {
                    JobVertex source = byName.get(input.asText());
                    inputs.get(vertex).add(source);
                    vertex.connectNewDataSetAsInput(
                            source,
                            DistributionPattern.ALL_TO_ALL,
                            ResultPartitionType.PIPELINED,
                            new IntermediateDataSetID(),
                            false,
                            false);
                }
            }
            order = new JobGraph(new JobID(), "job", byName.values().toArray(new JobVertex[0]))
                    .getVerticesSortedTopologicallyFromSources();
            for (JobVertex vertex : order) {
                List<ConsumedPartitionGroup> consumed = new ArrayList<>();
                for (JobVertex source : inputs.get(vertex)) {
                    consumed.add(allOf(source, vertex.getParallelism()));
                }
                for (int index = 0; index < vertex.getParallelism(); index++) {
                    ExecutionVertexID id = new ExecutionVertexID(vertex.getID(), index);
                    vertices.put(id, (SchedulingExecutionVertex) stub(
                            SchedulingExecutionVertex.class,
                            Map.of("getId", id, "getConsumedPartitionGroups", consumed)));
                }
            }
        }

        private ConsumedPartitionGroup allOf(JobVertex source, int consumers) {
            IntermediateDataSetID dataSet = new IntermediateDataSetID();
            List<IntermediateResultPartitionID> ids = new ArrayList<>();
            for (int index = 0; index < source.getParallelism(); index++) {
                IntermediateResultPartitionID id = new IntermediateResultPartitionID(dataSet, index);
                ids.add(id);
                partitions.put(id, (SchedulingResultPartition) stub(
                        SchedulingResultPartition.class,
                        Map.of("getProducer", vertices.get(new ExecutionVertexID(source.getID(), index)))));
            }
            return ConsumedPartitionGroup.fromMultiplePartitions(consumers, ids, ResultPartitionType.PIPELINED);
        }

        @Override
        public Iterable<SchedulingExecutionVertex> getVertices() {
            return vertices.values();
        }

        @Override
        public SchedulingExecutionVertex getVertex(ExecutionVertexID id) {
            return vertices.get(id);
        }

        @Override
        public SchedulingResultPartition getResultPartition(IntermediateResultPartitionID id) {
            return partitions.get(id);
        }

        @Override
        public void registerSchedulingTopologyListener(SchedulingTopologyListener listener) {
        }

        @Override
        public Iterable<SchedulingPipelinedRegion> getAllPipelinedRegions() {
            throw new UnsupportedOperationException();
        }

        String name(ExecutionVertexID id) {
            return names.get(id.getJobVertexId()) + "[" + id.getSubtaskIndex() + "]";
        }
    }

    /** Slots per node that the resource manager allocates. */
    private static Map<String, Integer> allocated(TaskManagerLoadBalanceMode mode, JsonNode nodes, int count)
            throws ReflectiveOperationException {
        Map<InstanceID, String> node = new HashMap<>();
        List<Object> managers = new ArrayList<>();
        String room = "org.apache.flink.runtime.resourcemanager.slotmanager.";
        Object gateway = stub(TaskExecutorGateway.class, Map.of());
        for (JsonNode one : nodes) {
            int slots = one.get("slots").asInt();
            if (slots == 0) {
                continue;
            }
            InstanceID id = new InstanceID();
            node.put(id, one.get("id").asText());
            TaskExecutorConnection connection =
                    new TaskExecutorConnection(new ResourceID(one.get("id").asText()), (TaskExecutorGateway) gateway);
            managers.add(stub(Class.forName(room + "TaskManagerInfo"), Map.of(
                    "getInstanceId", id,
                    "getTaskExecutorConnection", connection,
                    "getDefaultSlotResourceProfile", SLOT,
                    "getTotalResource", profile(slots),
                    "getAvailableResource", profile(slots - one.get("used").asInt()))));
        }
        Object provider = stub(Class.forName(room + "TaskManagerResourceInfoProvider"), Map.of(
                "getRegisteredTaskManagers", managers, "getPendingTaskManagers", List.of()));
        DefaultResourceAllocationStrategy strategy = new DefaultResourceAllocationStrategy(
                SLOT, 1, mode, Duration.ZERO, 0, new CPUResource(0), MemorySize.ZERO);
        JobID job = new JobID();
        Map<JobID, Collection<ResourceRequirement>> missing =
                Map.of(job, List.of(ResourceRequirement.create(ResourceProfile.UNKNOWN, count)));
        Method method = DefaultResourceAllocationStrategy.class.getMethod(
                "tryFulfillRequirements",
                Map.class,
                Class.forName(room + "TaskManagerResourceInfoProvider"),
                BlockedTaskManagerChecker.class);
        ResourceAllocationResult result = (ResourceAllocationResult)
                method.invoke(strategy, missing, provider, (BlockedTaskManagerChecker) id -> false);
        Map<String, Integer> found = new LinkedHashMap<>();
        if (result.getPendingTaskManagersToAllocate().isEmpty()) {
            result.getAllocationsOnRegisteredResources().getOrDefault(job, Map.of())
                    .forEach((id, counter) -> found.put(node.get(id), counter.getTotalResourceCount()));
        }
        return found;
    }

    /** Number of executors and node of every request, in the order in which requests are matched. */
    private static List<List<Object>> matched(Map<String, Integer> allocated, List<ExecutionSlotSharingGroup> groups)
            throws ReflectiveOperationException {
        List<PhysicalSlot> slots = new ArrayList<>();
        for (Map.Entry<String, Integer> entry : allocated.entrySet()) {
            TaskManagerLocation location = new TaskManagerLocation(
                    new ResourceID(entry.getKey()), InetAddress.getLoopbackAddress(), 1);
            for (int at = 0; at < entry.getValue(); at++) {
                slots.add((PhysicalSlot) stub(PhysicalSlot.class, Map.of(
                        "getAllocationId", new AllocationID(),
                        "getTaskManagerLocation", location,
                        "getResourceProfile", SLOT)));
            }
        }
        Map<PendingRequest, Integer> sizes = new IdentityHashMap<>();
        List<PendingRequest> requests = new ArrayList<>();
        for (ExecutionSlotSharingGroup group : groups) {
            PendingRequest request = PendingRequest.createNormalRequest(
                    new SlotRequestId(), ResourceProfile.UNKNOWN, group.getTaskExecutionLoad(), Set.of());
            requests.add(request);
            sizes.put(request, group.getExecutionVertexIds().size());
        }
        List<List<Object>> found = new ArrayList<>();
        for (Object match : TasksBalancedRequestSlotMatchingStrategy.INSTANCE.matchRequestsAndSlots(
                slots, requests, new HashMap<ResourceID, TaskExecutionLoad>())) {
            Method slot = match.getClass().getDeclaredMethod("getSlot");
            Method request = match.getClass().getDeclaredMethod("getPendingRequest");
            slot.setAccessible(true);
            request.setAccessible(true);
            String node = ((PhysicalSlot) slot.invoke(match)).getTaskManagerLocation().getResourceID()
                    .getResourceIdString();
            found.add(List.of(sizes.get((PendingRequest) request.invoke(match)), node));
        }
        return found;
    }

    private static Map<String, Object> answer(JsonNode round) throws ReflectiveOperationException {
        Job job = new Job(round.get("components"));
        TaskManagerLoadBalanceMode mode = TaskManagerLoadBalanceMode.valueOf(round.get("mode").asText());
        SlotSharingStrategy.Factory factory = mode == TaskManagerLoadBalanceMode.TASKS
                ? new TaskBalancedPreferredSlotSharingStrategy.Factory()
                : new LocalInputPreferredSlotSharingStrategy.Factory();
        SlotSharingStrategy sharing = factory.create(job, Set.of(job.group), Set.of());
        List<ExecutionSlotSharingGroup> groups = new ArrayList<>(sharing.getExecutionSlotSharingGroups());
        Map<String, Integer> allocated = allocated(mode, round.get("nodes"), groups.size());
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("order", job.order.stream().map(JobVertex::getName).collect(Collectors.toList()));
        found.put("shared", groups.stream()
                .map(one -> one.getExecutionVertexIds().stream().map(job::name).sorted().collect(Collectors.toList()))
                .collect(Collectors.toList()));
        found.put("allocated", allocated);
        found.put("matched", mode == TaskManagerLoadBalanceMode.TASKS && !allocated.isEmpty()
                ? matched(allocated, groups)
                : Collections.emptyList());
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }
}
