package lockbench;

import java.util.Optional;

/**
 * One client of a library, as its user drives it. All calls come from one thread, one after the
 * other. Whatever a call throws is told as unknown, in the library's words. A hold's id is 16
 * hexadecimal digits.
 */
interface Client {
  /** How many connections a pool opens before they are needed, unless it is the library's default. */
  Optional<Integer> IDLE_CONNECTIONS =
      Optional.ofNullable(System.getenv("LOCKBENCH_IDLE_CONNECTIONS")).map(Integer::valueOf);

  /** Asks for the key, waiting up to waitMs (0: one try); shared: to read only. */
  Answer acquire(String key, String hold, long ttlMs, long waitMs, boolean shared)
      throws Exception;

  Answer release(String key, String hold) throws Exception;

  default Answer extend(String key, String hold, long ttlMs) throws Exception {
    throw new UnsupportedOperationException("the library has no extend");
  }

  void close() throws Exception;

  /** Makes a client; in the client's own thread. */
  interface Maker {
    Client make(Setup setup) throws Exception;
  }

  /** A node as the client's group sees it. */
  record Node(String host, int port) {
    @Override
    public String toString() {
      return host + ":" + port;
    }
  }

  /** What a client is made of. */
  record Setup(java.util.List<Node> nodes, long timeoutMs, long ttlMs, boolean safe, Tell tell) {}

  /** Where a client reports what happens to a hold in the background, from any thread. */
  interface Tell {
    void extended(String hold, long sentNs, long validUntilNs);

    void lost(String hold);
  }
}
