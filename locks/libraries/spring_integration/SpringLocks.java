package lockbench;

import java.sql.SQLException;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.springframework.integration.jdbc.lock.DefaultLockRepository;
import org.springframework.integration.jdbc.lock.JdbcLockRegistry;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.jdbc.support.JdbcTransactionManager;

/**
 * Spring Integration's JdbcLockRegistry. As an application has it: one registry per process at its
 * defaults, on the pool of the process. An owner is a process (CLIENT_ID), and in it a thread, so
 * every client of the bench is a thread.
 *
 * <p>The promise is the time to live, from before the acquire() or renew() that set it was called:
 * the repository reads the clock in it. Each try of a wait is such a call.
 */
final class SpringLocks implements Client {
  private static final Map<Database.Server, String> TABLE =
      Map.of(
          Database.Server.POSTGRES, table("TIMESTAMP"),
          Database.Server.MARIADB, table("DATETIME(6)"));
  private static final Shared<Registry> SHARED = new Shared<>(registry -> {});

  private final Database.Server server;
  private final Database database;
  private final Noting repository;
  private final JdbcLockRegistry registry;
  private final Map<String, DistributedLock> holds = new HashMap<>();

  SpringLocks(Database.Server server, Setup setup) {
    this.server = server;
    database = Database.of(server, setup);
    Registry one = SHARED.join(server, () -> Registry.of(new Noting(database, server)));
    repository = one.repository;
    registry = one.registry;
  }

  @Override
  public Answer acquire(String key, String hold, long ttlMs, long waitMs, boolean shared)
      throws InterruptedException {
    try {
      database.make(TABLE.get(server));
    } catch (SQLException error) {
      return Answer.denied("no-effect: there is no table: " + Answer.named(error));
    }
    DistributedLock lock = registry.obtain(key);
    if (!lock.tryLock(Duration.ofMillis(waitMs), Duration.ofMillis(ttlMs))) {
      return Answer.denied((waitMs > 0 ? "gave-up" : "held") + ": tryLock returned false");
    }
    holds.put(hold, lock);
    return granted(repository.sentNs.get(), ttlMs);
  }

  @Override
  public Answer release(String key, String hold) {
    DistributedLock lock = holds.remove(hold);
    if (lock == null) {
      return Answer.NOT_HELD;
    }
    try {
      lock.unlock();
    } catch (ConcurrentModificationException error) {
      return Answer.NOT_HELD;
    }
    return Answer.RELEASED;
  }

  @Override
  public Answer extend(String key, String hold, long ttlMs) {
    if (!holds.containsKey(hold)) {
      return Answer.NOT_HELD;
    }
    try {
      registry.renewLock(key, Duration.ofMillis(ttlMs));
    } catch (IllegalStateException error) {
      return Answer.NOT_HELD; // "Could not renew lock"
    }
    return granted(repository.sentNs.get(), ttlMs);
  }

  @Override
  public void close() {
    holds.clear();
    SHARED.leave(server);
    database.leave();
  }

  private static Answer granted(long sentNs, long ttlMs) {
    return Answer.granted(sentNs, sentNs + TimeUnit.MILLISECONDS.toNanos(ttlMs), null);
  }

  /** As in schema-postgresql.sql and schema-mysql.sql of spring-integration-jdbc. */
  private static String table(String time) {
    return "INT_LOCK (LOCK_KEY CHAR(36) NOT NULL, REGION VARCHAR(100) NOT NULL, CLIENT_ID CHAR(36),"
        + " CREATED_DATE "
        + time
        + " NOT NULL, EXPIRED_AFTER "
        + time
        + " NOT NULL, constraint INT_LOCK_PK primary key (LOCK_KEY, REGION))";
  }

  private record Registry(Noting repository, JdbcLockRegistry registry) {
    static Registry of(Noting repository) {
      return new Registry(repository, new JdbcLockRegistry(repository));
    }
  }

  /** Notes when the newest statement of a thread that sets a time was called for. */
  private static final class Noting extends DefaultLockRepository {
    private final ThreadLocal<Long> sentNs = new ThreadLocal<>();

    Noting(Database database, Database.Server server) {
      super(database.pool());
      setTransactionManager(new JdbcTransactionManager(database.pool()));
      if (server == Database.Server.POSTGRES) { // a refused insert would abort the transaction
        setInsertQuery(getInsertQuery() + " ON CONFLICT DO NOTHING");
      }
      afterPropertiesSet();
      afterSingletonsInstantiated();
    }

    @Override
    public boolean acquire(String lock, Duration ttl) {
      sentNs.set(System.nanoTime());
      return super.acquire(lock, ttl);
    }

    @Override
    public boolean renew(String lock, Duration ttl) {
      sentNs.set(System.nanoTime());
      return super.renew(lock, ttl);
    }
  }
}
