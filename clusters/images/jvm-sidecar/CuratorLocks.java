package lockbench;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;

/**
 * Curator's locks: a CuratorFramework per client, with a session as long as the lease, retries as
 * its "getting started" has them, and a lock object per acquire.
 *
 * <p>With the listener that its documentation demands, SUSPENDED and LOST are told as the loss of
 * everything held; without it nothing is.
 *
 * <p>The promise is the session: from when the last acknowledged request was sent, for as long as
 * was negotiated. Curator does not tell when it sent one, so this client sends one of its own six
 * times a session, on the same session. The promise is therefore early by up to a sixth.
 */
final class CuratorLocks implements Client {
  static final Kind MUTEX = CuratorLocks::mutex;
  static final Kind SEMAPHORE = CuratorLocks::semaphore;
  static final Kind READ_WRITE = CuratorLocks::readWrite;
  private static final int PERMITS = 3;
  private static final int RETRY_MS = 1000;
  private static final int RETRIES = 3;
  private static final ScheduledExecutorService BEATS =
      Executors.newSingleThreadScheduledExecutor(
          work -> {
            Thread thread = new Thread(work, "beats");
            thread.setDaemon(true);
            return thread;
          });

  private final Setup setup;
  private final Kind kind;
  private final CuratorFramework curator;
  private final Map<String, Release> holds = new HashMap<>();
  private final Map<String, String> told = new ConcurrentHashMap<>(); // hold → key
  private long sentNs; // of the last acknowledged request
  private long untilNs;

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
    String servers =
        String.join(",", setup.nodes().stream().map(Node::toString).toList());
    curator =
        CuratorFrameworkFactory.newClient(
            servers,
            (int) setup.ttlMs(),
            (int) setup.timeoutMs(),
            new ExponentialBackoffRetry(RETRY_MS, RETRIES));
    if (listens) {
      curator.getConnectionStateListenable().addListener((client, state) -> changed(state));
    }
    curator.start();
    long pauseMs = setup.ttlMs() / 6;
    BEATS.scheduleWithFixedDelay(this::beat, pauseMs, pauseMs, TimeUnit.MILLISECONDS);
  }

  @Override
  public Answer acquire(String key, String hold, long ttlMs, long waitMs, boolean shared)
      throws Exception {
    Release release = kind.ask(curator, "/lockbench/" + path(key), waitMs, shared);
    if (release == null) {
      return Answer.denied((waitMs > 0 ? "gave-up" : "held") + ": acquire returned no lock");
    }
    holds.put(hold, release);
    synchronized (this) {
      told.put(hold, key);
      if (untilNs > 0) {
        return Answer.granted(sentNs, untilNs, null);
      }
    }
    firstBeat();
    synchronized (this) {
      return Answer.granted(sentNs, untilNs, null);
    }
  }

  @Override
  public Answer release(String key, String hold) throws Exception {
    Release release = holds.remove(hold);
    told.remove(hold);
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
      told.keySet().forEach(setup.tell()::lost);
      told.clear();
    }
  }

  // --- the promise -------------------------------------------------------------------------------

  private void beat() {
    try {
      if (!curator.getZookeeperClient().isConnected()) {
        return;
      }
      ZooKeeper session = curator.getZookeeperClient().getZooKeeper();
      long nowNs = System.nanoTime();
      session.exists(
          "/",
          false,
          (code, path, context, stat) -> {
            if (code == KeeperException.Code.OK.intValue()) {
              acknowledged(nowNs, session.getSessionTimeout());
            }
          },
          null);
    } catch (Exception error) {
      // No session now; the promise ends where it ends.
      System.err.println("no beat: " + error);
    }
  }

  private void firstBeat() throws Exception {
    ZooKeeper session = curator.getZookeeperClient().getZooKeeper();
    long nowNs = System.nanoTime();
    session.exists("/", false);
    acknowledged(nowNs, session.getSessionTimeout());
  }

  private synchronized void acknowledged(long atNs, long sessionMs) {
    sentNs = Math.max(sentNs, atNs);
    untilNs = sentNs + sessionMs * 1_000_000;
    told.keySet().forEach(hold -> setup.tell().extended(hold, sentNs, untilNs));
  }
}
