package millrace;

import java.util.List;

/** Exclamation, as `workloads/apps/exclamation.py` does it; its source is that of word count, with a word per record. */
final class Exclamation {
    private static final String MARKS = "!!!";

    private Exclamation() {
    }

    /** Appends the marks to a word and passes it on. */
    static final class Exclaim implements Operator {
        @Override
        public void process(String source, String stream, Object[] row, Emitter out) {
            out.emit(stream, row[0] + MARKS);
        }
    }

    /** Appends the marks to a word and counts the result; the controller makes a digest of the counts. */
    static final class LastExclaim implements Operator {
        private final WordCount.Count counts = new WordCount.Count();

        @Override
        public void process(String source, String stream, Object[] row, Emitter out) {
            counts.process(source, stream, new Object[] {row[0] + MARKS}, out);
        }

        @Override
        public List<String> answer() {
            return counts.answer();
        }
    }
}
