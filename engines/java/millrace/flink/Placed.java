package millrace.flink;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/** Where Flink has placed each subtask, read from its REST interface when all of them run. */
final class Placed {
    private static final long POLL_MS = 200;
    private static final String SOURCE = "Source: ";

    private final HttpClient client = HttpClient.newHttpClient();
    private final ObjectMapper mapper = new ObjectMapper();
    private final String job;

    /** Take the address of a job, `http://address:port/jobs/id`. */
    Placed(String job) {
        this.job = job;
    }

    /** Wait until all subtasks run, then write a line for each: component, index, TaskManager. */
    void write(Path file) throws IOException, InterruptedException {
        List<String> lines = lines();
        while (lines == null) {
            Thread.sleep(POLL_MS);
            lines = lines();
        }
        Path partial = file.resolveSibling(file.getFileName() + ".partial");
        Files.write(partial, lines, StandardCharsets.UTF_8);
        Files.move(partial, file, StandardCopyOption.ATOMIC_MOVE);
    }

    /** Return the lines; null until all subtasks run. */
    private List<String> lines() throws IOException, InterruptedException {
        JsonNode whole = get("");
        String state = whole.path("state").asText();
        if (!state.equals("RUNNING")) {
            if (List.of("FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED").contains(state)) {
                throw new IOException("the job is " + state);
            }
            return null;
        }
        List<String> lines = new ArrayList<>();
        for (JsonNode vertex : whole.path("vertices")) {
            String name = vertex.path("name").asText();
            String component = name.startsWith(SOURCE) ? name.substring(SOURCE.length()) : name;
            JsonNode subtasks = get("/vertices/" + vertex.path("id").asText()).path("subtasks");
            if (subtasks.size() != vertex.path("parallelism").asInt()) {
                return null;
            }
            for (JsonNode subtask : subtasks) {
                if (!subtask.path("status").asText().equals("RUNNING")) {
                    return null;
                }
                lines.add(component + "\t" + subtask.path("subtask").asInt() + "\t" + subtask.path("taskmanager-id").asText());
            }
        }
        return lines.isEmpty() ? null : lines;
    }

    /** Return an answer; an empty object until Flink knows the job. */
    private JsonNode get(String path) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(job + path)).build();
        HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        return answer.statusCode() == 200 ? mapper.readTree(answer.body()) : mapper.createObjectNode();
    }
}
