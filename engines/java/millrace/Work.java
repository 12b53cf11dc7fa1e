package millrace;

import java.lang.management.ManagementFactory;

/** CPU work in operations, each of which takes the same time; a node with less CPU takes longer for as many. */
public final class Work {
    private static final int ROUNDS = 50;
    private static final long ROUND = 4_000_000;
    private long state = 88172645463325252L;

    /** Spend a number of operations: steps of a xorshift generator, which cannot be left out or shortened. */
    public void spend(long operations) {
        long x = state;
        for (long left = operations; left > 0; left--) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        state = x;
    }

    /** Print the least CPU time of an operation in nanoseconds, over rounds of which the first ones compile. */
    public static void main(String[] arguments) {
        Work work = new Work();
        double least = Double.MAX_VALUE;
        for (int round = 0; round < ROUNDS; round++) {
            long before = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            work.spend(ROUND);
            long spent = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - before;
            least = Math.min(least, (double) spent / ROUND);
        }
        System.out.println(least + (work.state == 0 ? " " : ""));
    }
}
