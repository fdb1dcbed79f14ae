package lockbench;

import java.sql.SQLException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;

/**
 * ShedLock's lock provider for JDBC, used directly: a provider per client, by the database's time, on
 * the pool of the process. To ShedLock an owner is a host's name, so each client is given a name, as
 * if it were on a host of its own; oneHost: all have that of this machine.
 *
 * <p>ShedLock does not wait. Who waits here asks again.
 *
 * <p>The promise is lockAtMostFor, from before the first statement of lock() was sent. MariaDB's time
 * is cut to milliseconds, which is taken off.
 */
final class ShedLocks implements Client {
  private static final long PAUSE_MS = 50;
  private static final long CUT_NS = 1_000_000; // UTC_TIMESTAMP(3)
  private static final Map<Database.Server, String> TABLE =
      Map.of(
          Database.Server.POSTGRES,
          "shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP"
              + " NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
          Database.Server.MARIADB,
          "shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, locked_at"
              + " TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT"
              + " NULL, PRIMARY KEY (name))");

  private final Database.Server server;
  private final Database database;
  private final JdbcTemplateLockProvider provider;
  private final Map<String, SimpleLock> holds = new HashMap<>();

  ShedLocks(Database.Server server, Setup setup, boolean oneHost) {
    this.server = server;
    database = Database.of(server, setup);
    JdbcTemplateLockProvider.Configuration.Builder builder =
        JdbcTemplateLockProvider.Configuration.builder()
            .withJdbcTemplate(new JdbcTemplate(database.pool()))
            .usingDbTime();
    if (!oneHost) {
      builder.withLockedByValue(UUID.randomUUID().toString());
    }
    provider = new JdbcTemplateLockProvider(builder.build());
  }

  @Override
  public Answer acquire(String key, String hold, long ttlMs, long waitMs, boolean shared)
      throws InterruptedException {
    try {
      database.make(TABLE.get(server));
    } catch (SQLException error) {
      return Answer.denied("no-effect: there is no table: " + Answer.named(error));
    }
    long endNs = System.nanoTime() + waitMs * 1_000_000;
    while (true) {
      long leftMs = (endNs - System.nanoTime()) / 1_000_000;
      long sentNs = System.nanoTime();
      Optional<SimpleLock> lock =
          provider.lock(
              new LockConfiguration(
                  ClockProvider.now(), key, Duration.ofMillis(ttlMs), Duration.ZERO));
      if (lock.isPresent()) {
        holds.put(hold, lock.get());
        return granted(sentNs, ttlMs);
      }
      if (leftMs <= 0) {
        return Answer.denied((waitMs > 0 ? "gave-up" : "held") + ": lock() returned nothing");
      }
      Thread.sleep(Math.min(PAUSE_MS, leftMs));
    }
  }

  @Override
  public Answer release(String key, String hold) {
    SimpleLock lock = holds.remove(hold);
    if (lock == null) {
      return Answer.NOT_HELD;
    }
    lock.unlock();
    return Answer.RELEASED;
  }

  @Override
  public Answer extend(String key, String hold, long ttlMs) {
    SimpleLock lock = holds.get(hold);
    if (lock == null) {
      return Answer.NOT_HELD;
    }
    long sentNs = System.nanoTime();
    Optional<SimpleLock> longer = lock.extend(Duration.ofMillis(ttlMs), Duration.ZERO);
    if (longer.isEmpty()) {
      holds.remove(hold);
      return Answer.NOT_HELD;
    }
    holds.put(hold, longer.get());
    return granted(sentNs, ttlMs);
  }

  @Override
  public void close() {
    holds.clear();
    database.leave();
  }

  private static Answer granted(long sentNs, long ttlMs) {
    return Answer.granted(sentNs, sentNs + ttlMs * 1_000_000 - CUT_NS, null);
  }
}
