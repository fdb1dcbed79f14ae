package lockbench;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.ListeningSocket;

/**
 * Curator's locks: a CuratorFramework per client, with a session as long as the lease, retries as
 * its "getting started" has them, and a lock object per acquire.
 *
 * <p>With the listener that its documentation demands, SUSPENDED and LOST are told as the loss of
 * everything held; without it nothing is.
 *
 * <p>The promise is the session: from when its last message that counts was sent, of any kind
 * (ListeningSocket), for as long as was negotiated. What opens a session counts once it is answered.
 * Another message counts once a later one, sent at least a tick after its answer, is answered too:
 * before that its server may die and not have told the leader, which ends sessions
 * (locks/libraries/shared/zookeeper_touches.py says why). A grant has the promise of the session that
 * answered the recipe's last list of children, which is what it decides by
 * (LockInternals.getSortedChildren, InterProcessSemaphoreV2.internalAcquire1Lease, 5.9.0). What a
 * later session is answered lengthens no hold of an earlier one.
 */
final class CuratorLocks implements Client {
  static final Kind MUTEX = CuratorLocks::mutex;
  static final Kind SEMAPHORE = CuratorLocks::semaphore;
  static final Kind READ_WRITE = CuratorLocks::readWrite;
  private static final int PERMITS = 3;
  private static final int RETRY_MS = 1000;
  private static final int RETRIES = 3;
  // The servers' tickTime, of which no client is told: as clusters/zookeeper/ensemble.py sets it.
  private static final int TICKS_PER_LEASE = 15;
  private static final int TICK_MS_MIN = 100;

  private final Setup setup;
  private final Kind kind;
  private final CuratorFramework curator;
  private final Map<String, Release> holds = new HashMap<>();
  private final Sessions sessions;
  // Read and written by whoever has the monitor of sessions.
  private final Map<String, Session> told = new HashMap<>(); // hold → where it was granted
  private Session current = new Session(0);
  private Session listed = current; // the one that answered the last list of children

  /** How one of the recipes is asked: what gives it back, or null when the wait was over. */
  interface Kind {
    Release ask(CuratorFramework curator, String path, long waitMs, boolean shared)
        throws Exception;
  }

  /** Gives a hold back. */
  interface Release {
    void run() throws Exception;
  }

  CuratorLocks(Setup setup, Kind kind, boolean listens) throws Exception {
    this.setup = setup;
    this.kind = kind;
    this.sessions = new Sessions();
    String servers =
        String.join(",", setup.nodes().stream().map(Node::toString).toList());
    curator =
        CuratorFrameworkFactory.newClient(
            servers,
            (int) setup.ttlMs(),
            (int) setup.timeoutMs(),
            new ExponentialBackoffRetry(RETRY_MS, RETRIES),
            ListeningSocket.telling(sessions));
    if (listens) {
      curator.getConnectionStateListenable().addListener((client, state) -> changed(state));
    }
    curator.start();
  }

  @Override
  public Answer acquire(String key, String hold, long ttlMs, long waitMs, boolean shared)
      throws Exception {
    Release release = kind.ask(curator, "/lockbench/" + path(key), waitMs, shared);
    if (release == null) {
      return Answer.denied((waitMs > 0 ? "gave-up" : "held") + ": acquire returned no lock");
    }
    holds.put(hold, release);
    synchronized (sessions) {
      told.put(hold, listed);
      return Answer.granted(listed.sentNs, listed.untilNs(), null);
    }
  }

  @Override
  public Answer release(String key, String hold) throws Exception {
    Release release = holds.remove(hold);
    synchronized (sessions) {
      told.remove(hold);
    }
    if (release == null) {
      return Answer.NOT_HELD;
    }
    try {
      release.run();
    } catch (IllegalMonitorStateException error) {
      return Answer.NOT_HELD;
    }
    return Answer.RELEASED;
  }

  @Override
  public void close() {
    curator.close();
  }

  /** A key is one name below the root, whatever is in it. */
  private static String path(String key) {
    return key.replace('/', '_');
  }

  private static Release mutex(CuratorFramework curator, String path, long waitMs, boolean shared)
      throws Exception {
    InterProcessMutex mutex = new InterProcessMutex(curator, path);
    return mutex.acquire(waitMs, TimeUnit.MILLISECONDS) ? mutex::release : null;
  }

  private static Release semaphore(
      CuratorFramework curator, String path, long waitMs, boolean shared) throws Exception {
    InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(curator, path, PERMITS);
    Lease lease = semaphore.acquire(waitMs, TimeUnit.MILLISECONDS);
    return lease == null ? null : lease::close;
  }

  private static Release readWrite(
      CuratorFramework curator, String path, long waitMs, boolean shared) throws Exception {
    InterProcessReadWriteLock both = new InterProcessReadWriteLock(curator, path);
    InterProcessMutex one = shared ? both.readLock() : both.writeLock();
    return one.acquire(waitMs, TimeUnit.MILLISECONDS) ? one::release : null;
  }

  private void changed(ConnectionState state) {
    if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
      synchronized (sessions) {
        told.keySet().forEach(setup.tell()::lost);
        told.clear();
      }
    }
  }

  // --- the promise -------------------------------------------------------------------------------

  /** What one session is promised. */
  private final class Session {
    private final long id;
    private final Deque<Answered> noted = new ArrayDeque<>(); // what does not count yet
    private long sentNs; // of the newest that counts
    private long timeoutNs;

    Session(long id) {
      this.id = id;
    }

    long untilNs() {
      return sentNs + timeoutNs;
    }

    void tell() {
      told.forEach(
          (hold, granted) -> {
            if (granted == this) {
              setup.tell().extended(hold, sentNs, untilNs());
            }
          });
    }
  }

  private record Answered(long sentNs, long readNs) {}

  private final class Sessions implements ListeningSocket.Listener {
    private final long tickNs =
        Math.max(setup.ttlMs() * 1_000_000 / TICKS_PER_LEASE, TICK_MS_MIN * 1_000_000L);

    @Override
    public void accepted(long session, long sentNs, long timeoutMs) {
      if (session != current.id) {
        current = new Session(session);
      }
      current.noted.clear();
      current.sentNs = sentNs;
      current.timeoutNs = timeoutMs * 1_000_000;
      current.tell();
    }

    @Override
    public void answered(long session, long sentNs, boolean lists) {
      if (session != current.id) {
        return; // of a client that Curator has closed
      }
      long beforeNs = current.sentNs;
      while (!current.noted.isEmpty() && current.noted.peek().readNs + tickNs <= sentNs) {
        current.sentNs = Math.max(current.sentNs, current.noted.remove().sentNs);
      }
      current.noted.add(new Answered(sentNs, System.nanoTime()));
      if (current.sentNs > beforeNs) {
        current.tell();
      }
      if (lists) {
        listed = current;
      }
    }
  }
}
