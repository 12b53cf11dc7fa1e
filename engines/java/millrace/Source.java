package millrace;

/** The records of one executor of a spout. */
public interface Source {
    /** Emit the executor's own record at a position, counted from 0. */
    void emit(long position, Emitter out);
}
