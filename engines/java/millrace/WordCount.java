package millrace;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Word count over the same records as `workloads/apps/wordcount.py`, and with the same words. */
final class WordCount {
    private static final String STREAM = "default";

    private WordCount() {
    }

    /** Lines of the prepared text, from its begin again after its end; source i of n has the lines i, i + n, and so on. */
    static final class Lines implements Source {
        private final List<String> lines = new ArrayList<>();
        private final int first;
        private final int step;

        Lines(Job job, Job.Component component, int index) {
            first = (int) job.whole("component." + component.number() + ".share") + index;
            step = (int) job.whole("shares");
            try {
                // Lines end at LF only; those of `Files.readAllLines` also end at CR.
                String text = Files.readString(job.file("text"), StandardCharsets.UTF_8);
                for (int begin = 0, end; begin < text.length(); begin = end + 1) {
                    end = text.indexOf('\n', begin);
                    lines.add(text.substring(begin, end));
                }
            } catch (IOException fault) {
                throw new UncheckedIOException(fault);
            }
        }

        @Override
        public void emit(long position, Emitter out) {
            out.emit(STREAM, lines.get((int) ((position * step + first) % lines.size())));
        }
    }

    /** Splits lines into words. */
    static final class Split implements Operator {
        @Override
        public void process(String source, String stream, Object[] row, Emitter out) {
            String line = (String) row[0];
            int begin = -1;
            for (int at = 0; at <= line.length(); at++) {
                if (at == line.length() || isSpace(line.charAt(at))) {
                    if (begin >= 0) {
                        out.emit(STREAM, line.substring(begin, at));
                    }
                    begin = -1;
                } else if (begin < 0) {
                    begin = at;
                }
            }
        }

        /** White space as Python's `str.split` has it. */
        private static boolean isSpace(char each) {
            return each == ' ' || each >= '\t' && each <= '\r' || each >= 0x1C && each <= 0x1F || each == 0x85
                || each >= 0xA0 && Character.isSpaceChar(each);
        }
    }

    /** Counts words. */
    static final class Count implements Operator {
        private final Map<String, long[]> counts = new HashMap<>();

        @Override
        public void process(String source, String stream, Object[] row, Emitter out) {
            counts.computeIfAbsent((String) row[0], word -> new long[1])[0]++;
        }

        @Override
        public List<String> answer() {
            List<String> rows = new ArrayList<>(counts.size());
            counts.forEach((word, count) -> rows.add(word + "\t" + count[0]));
            return rows;
        }
    }
}
