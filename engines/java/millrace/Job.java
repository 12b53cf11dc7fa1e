package millrace;

import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;

/** What executors need to know about their run: the file `job.properties`, written by `engines/job.py`. */
public final class Job {
    /** A subscription; `fields` are those of a fields grouping. */
    public record Input(String source, String stream, String grouping, List<String> fields) { }

    /** A stream that a component declares. */
    public record Output(String stream, List<String> fields) { }

    /** A component; `number` is its place in the topology, from 0. */
    public record Component(int number, String id, boolean isSpout, int parallelism, List<Output> outputs, List<Input> inputs) {
        /** Whether the executors count what arrives, and measure its latency. */
        public boolean isSink() {
            return outputs.isEmpty();
        }

        /** The name of an executor, as in traces. */
        public String executor(int index) {
            return id + "[" + index + "]";
        }
    }

    public final Path folder;
    public final List<Component> components = new ArrayList<>();
    private final Properties properties = new Properties();

    private Job(Path folder) {
        this.folder = folder;
        try (Reader reader = Files.newBufferedReader(folder.resolve("job.properties"), StandardCharsets.ISO_8859_1)) {
            properties.load(reader);
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
        for (int number = 0; has("component." + number + ".id"); number++) {
            components.add(component(number));
        }
    }

    /** Read the job of this process; its folder may have another path on each node. */
    public static Job read() {
        return new Job(Path.of(System.getProperty("millrace.folder")));
    }

    private Component component(int number) {
        String key = "component." + number + ".";
        List<Output> outputs = new ArrayList<>();
        for (int at = 0; has(key + "output." + at); at++) {
            String[] parts = text(key + "output." + at).split("\t", -1);
            outputs.add(new Output(parts[0], names(parts[1])));
        }
        List<Input> inputs = new ArrayList<>();
        for (int at = 0; has(key + "input." + at); at++) {
            String[] parts = text(key + "input." + at).split("\t", -1);
            inputs.add(new Input(parts[0], parts[1], parts[2], names(parts[3])));
        }
        boolean isSpout = text(key + "kind").equals("spout");
        return new Component(number, text(key + "id"), isSpout, (int) whole(key + "parallelism"), outputs, inputs);
    }

    private static List<String> names(String listed) {
        return listed.isEmpty() ? List.of() : Arrays.asList(listed.split(" "));
    }

    /** Return a component by its id. */
    public Component component(String id) {
        return components.stream().filter(each -> each.id().equals(id)).findFirst().orElseThrow();
    }

    /** Whether there is a setting of this name. */
    public boolean has(String key) {
        return properties.containsKey(key);
    }

    /** Return a setting, which must be there. */
    public String text(String key) {
        String value = properties.getProperty(key);
        if (value == null) {
            throw new IllegalArgumentException("job.properties has no " + key);
        }
        return value;
    }

    /** Return the path of a file; a relative one is one in the job's folder. */
    public Path file(String key) {
        return folder.resolve(text(key));
    }

    /** Return a whole number. */
    public long whole(String key) {
        return Long.parseLong(text(key));
    }

    /** Return a number, or `otherwise` if there is none. */
    public double number(String key, double otherwise) {
        return has(key) ? Double.parseDouble(text(key)) : otherwise;
    }

    /** Create the source of an executor of a spout. */
    public Source source(Component component, int index) {
        return isReplay() ? new Replay.Source(this, component, index) : new WordCount.Lines(this, component, index);
    }

    /** Create the operator of an executor of a bolt. */
    public Operator operator(Component component, int index) {
        if (isReplay()) {
            return new Replay.Operator(this, component, index);
        }
        return switch (component.id()) {
            case "split" -> new WordCount.Split();
            case "count" -> new WordCount.Count();
            case "exclaim1" -> new Exclamation.Exclaim();
            case "exclaim2" -> new Exclamation.LastExclaim();
            default -> throw new IllegalArgumentException(text("program") + " has no bolt " + component.id());
        };
    }

    private boolean isReplay() {
        return text("program").equals("replay");
    }
}
