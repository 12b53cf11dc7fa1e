package millrace;

/** Logarithmic buckets of latencies: 128 per power of two, so that the relative error is below 1 %. */
final class Buckets {
    private static final int BITS = 7;
    private static final int PER_OCTAVE = 1 << BITS;

    /** The highest latency is 2^46 ns, most of a day. */
    static final int COUNT = PER_OCTAVE * (46 - BITS + 1);

    private Buckets() {
    }

    /** Return the bucket of a time in nanoseconds. */
    static int of(long ns) {
        if (ns < PER_OCTAVE) {
            return (int) Math.max(0, ns);
        }
        int octave = 63 - Long.numberOfLeadingZeros(ns) - BITS;
        return Math.min(COUNT - 1, PER_OCTAVE * octave + (int) (ns >>> octave));
    }

    /** Return the highest time of a bucket. */
    static long highest(int bucket) {
        if (bucket < 2 * PER_OCTAVE) {
            return bucket;
        }
        int octave = bucket / PER_OCTAVE - 1;
        return ((long) (bucket - PER_OCTAVE * octave + 1) << octave) - 1;
    }
}
