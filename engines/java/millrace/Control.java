package millrace;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/**
 * Commands of the controller, as files: `go` has the times of the run, `finish` asks for the answers.
 *
 * <p>The times are those of this node's clock. Where it is not the controller's, `go` changes as the two drift apart.
 */
public final class Control {
    /** Times on the monotonic clock: start of sources, begin and end of the measured interval. */
    public record Times(long startNs, long measureStartNs, long measureEndNs) { }

    private static volatile Times times;

    private Control() {
    }

    /** Return the times of the run; null before `go`. */
    public static Times times() {
        return times;
    }

    /** Return the start of the sources; a row of another process may arrive before this one has seen `go`. */
    static long startNs() {
        while (times == null) {
            LockSupport.parkNanos(1_000_000);
        }
        return times.startNs();
    }

    static void look(Path folder) throws IOException {
        Path go = folder.resolve("control").resolve("go");
        if (Files.exists(go)) {
            String[] parts = Files.readString(go).trim().split(" ");
            times = new Times(Long.parseLong(parts[0]), Long.parseLong(parts[1]), Long.parseLong(parts[2]));
        }
    }

    static boolean isFinished(Path folder) {
        return Files.exists(folder.resolve("control").resolve("finish"));
    }
}
