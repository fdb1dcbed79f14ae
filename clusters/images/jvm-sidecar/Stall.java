package lockbench;

/**
 * A real stall of this JVM: the heap is filled with small objects that are all alive, and then
 * collected as a whole, which stops every thread for as long as it takes. How long is measured by a
 * thread that does nothing but look at the clock.
 *
 * <p>Does not guarantee a length: that is the heap's size (LOCKBENCH_HEAP) and the machine's. Roughly
 * a second per gigabyte.
 */
final class Stall {
  private static final double FULL = 0.75;
  private static final int BATCH = 10_000;

  private volatile boolean over;
  private long longestNs;

  /** One of very many; each points to the one before, which lies somewhere else by then. */
  private static final class Crumb {
    private final Crumb before;
    private final long[] filling = new long[2];

    Crumb(Crumb before) {
      this.before = before;
    }
  }

  /** Returns the longest time, in nanoseconds, for which nothing ran. */
  static long once() throws InterruptedException {
    Stall stall = new Stall();
    Thread clock = new Thread(stall::watch, "stall-clock");
    clock.start();
    Crumb heap = null;
    Runtime runtime = Runtime.getRuntime();
    while (runtime.totalMemory() - runtime.freeMemory() < FULL * runtime.maxMemory()) {
      for (int i = 0; i < BATCH; i++) {
        heap = new Crumb(heap);
      }
    }
    System.gc();
    stall.over = true;
    clock.join();
    java.lang.ref.Reference.reachabilityFence(heap);
    return stall.longestNs;
  }

  private void watch() {
    long last = System.nanoTime();
    while (!over) {
      try {
        Thread.sleep(1);
      } catch (InterruptedException error) {
        return;
      }
      long now = System.nanoTime();
      longestNs = Math.max(longestNs, now - last);
      last = now;
    }
  }
}
