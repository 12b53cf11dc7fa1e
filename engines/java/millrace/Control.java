package millrace;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Commands of the controller, as files: `go` has the times of the run, `finish` asks for the answers. */
public final class Control {
    /** Times on the monotonic clock: start of sources, measured interval, end of sources. */
    public record Times(long startNs, long measureStartNs, long measureEndNs, long stopNs) { }

    private static volatile Times times;

    private Control() {
    }

    /** Return the times of the run; null before `go`. */
    public static Times times() {
        return times;
    }

    static void look(Path folder) throws IOException {
        Path go = folder.resolve("control").resolve("go");
        if (times == null && Files.exists(go)) {
            String[] parts = Files.readString(go).trim().split(" ");
            times = new Times(Long.parseLong(parts[0]), Long.parseLong(parts[1]), Long.parseLong(parts[2]), Long.parseLong(parts[3]));
        }
    }

    static boolean isFinished(Path folder) {
        return Files.exists(folder.resolve("control").resolve("finish"));
    }
}
