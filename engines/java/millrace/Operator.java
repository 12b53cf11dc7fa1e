package millrace;

import java.util.List;

/** The work of one executor of a bolt. */
public interface Operator {
    /** Process a row that a component has sent on a stream. */
    void process(String source, String stream, Object[] row, Emitter out);

    /** Return the rows of the answer, as lines of fields separated by tabs; called when the topology is drained. */
    default List<String> answer() {
        return List.of();
    }
}
