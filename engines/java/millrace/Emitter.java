package millrace;

/** Where sources and operators send rows. */
@FunctionalInterface
public interface Emitter {
    /** Send a row on a stream. */
    void emit(String stream, Object... row);
}
