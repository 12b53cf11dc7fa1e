package millrace.storm;

import java.util.List;
import millrace.Executor;
import millrace.Job;
import millrace.Reporter;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.task.WorkerTopologyContext;

/** The names of Storm's tasks: the lowest task of a component is its executor 0, and each executor has one task. */
final class Placed {
    private Placed() {
    }

    /** Open the executor of a context in this worker. */
    static Executor open(Job job, TopologyContext context) {
        String component = context.getThisComponentId();
        int index = context.getComponentTasks(component).indexOf(context.getThisTaskId());
        int slot = context.getThisWorkerPort() - Integer.getInteger("millrace.port");
        return Reporter.open(job, System.getProperty("millrace.node"), slot, component, index);
    }

    /** Return the name of the executor of a task. */
    static String executor(WorkerTopologyContext context, int task) {
        String component = context.getComponentId(task);
        List<Integer> tasks = context.getComponentTasks(component);
        return component + "[" + tasks.indexOf(task) + "]";
    }
}
