package lockbench;

/** What is said to a request. Times are nanoseconds of CLOCK_MONOTONIC, which is nanoTime on Linux. */
record Answer(String said, String reason, long sentNs, Long validUntilNs, Long fence) {

  static final Answer RELEASED = new Answer("released", null, 0, null, null);
  static final Answer NOT_HELD = new Answer("not-held", null, 0, null, null);
  static final Answer CLOSED = new Answer("closed", null, 0, null, null);

  static Answer granted(long sentNs, long validUntilNs, Long fence) {
    return new Answer("granted", null, sentNs, validUntilNs, fence);
  }

  /** The reason begins with held, gave-up or no-effect. */
  static Answer denied(String reason) {
    return new Answer("denied", reason, 0, null, null);
  }

  static Answer unknown(Throwable error) {
    return new Answer("unknown", named(error), 0, null, null);
  }

  /** An error in words, on one line. */
  static String named(Throwable error) {
    String words = error.getClass().getSimpleName() + ": " + error.getMessage();
    return words.replaceAll("\\s+", " ");
  }
}
