package lockbench;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import javax.sql.DataSource;

/**
 * A database as an application has it: one pool of HikariCP's per process, at its defaults but for
 * the time that it waits and, where the bench says so, the connections that it opens in advance.
 * Nobody waits longer than the client timeout for a connection, and the driver no longer for an
 * answer: without that a driver waits for ever. Of several servers the one that takes writes is
 * connected to.
 *
 * <p>Guarantees that the table is there before the first statement of a lock is sent. Does not
 * guarantee that servers can be reached; a pool is made without them.
 */
final class Database {
  /** What is connected to. The bench's servers have one user, who needs no password. */
  enum Server {
    POSTGRES("jdbc:postgresql://%s/postgres") {
      @Override
      void limit(Properties driver, long timeoutMs) {
        driver.setProperty("connectTimeout", seconds(timeoutMs));
        driver.setProperty("socketTimeout", seconds(timeoutMs));
        driver.setProperty("sslmode", "disable");
        driver.setProperty("gssEncMode", "disable");
        driver.setProperty("targetServerType", "primary");
      }

      @Override
      void apart(Statement statement) throws SQLException {
        // Two that create a table at once are refused, IF NOT EXISTS or not.
        statement.execute("SELECT pg_advisory_xact_lock(hashtext('lockbench: create'))");
      }
    },
    MARIADB("jdbc:mariadb://%s/lockbench") {
      @Override
      void limit(Properties driver, long timeoutMs) {
        driver.setProperty("connectTimeout", Long.toString(timeoutMs));
        driver.setProperty("socketTimeout", Long.toString(timeoutMs));
      }

      @Override
      void apart(Statement statement) {}
    };

    private final String url;

    Server(String url) {
      this.url = url;
    }

    abstract void limit(Properties driver, long timeoutMs);

    abstract void apart(Statement statement) throws SQLException;

    private static String seconds(long ms) {
      return Long.toString(Math.ceilDiv(ms, 1000));
    }
  }

  private static final Set<String> MISSING = Set.of("42P01", "42S02"); // PostgreSQL, MariaDB
  private static final String USER = "lockbench";
  private static final long POOL_WAIT_MS_MIN = 250; // less is refused
  private static final Shared<Database> SHARED = new Shared<>(database -> database.pool.close());

  private final Server server;
  private final HikariDataSource pool;
  private boolean ready;

  private Database(Server server, Client.Setup setup) {
    this.server = server;
    HikariConfig config = new HikariConfig();
    config.setJdbcUrl(String.format(server.url, nodes(setup)));
    config.setUsername(USER);
    config.setConnectionTimeout(Math.max(POOL_WAIT_MS_MIN, setup.timeoutMs()));
    config.setInitializationFailTimeout(-1);
    Client.IDLE_CONNECTIONS.ifPresent(config::setMinimumIdle);
    Properties driver = new Properties();
    server.limit(driver, setup.timeoutMs());
    config.setDataSourceProperties(driver);
    this.pool = new HikariDataSource(config);
  }

  /** The one of this process, whose clients all have the same links; until its last one leaves. */
  static Database of(Server server, Client.Setup setup) {
    return SHARED.join(server, () -> new Database(server, setup));
  }

  void leave() {
    SHARED.leave(server);
  }

  private static String nodes(Client.Setup setup) {
    return setup.nodes().stream().map(Client.Node::toString).collect(Collectors.joining(","));
  }

  DataSource pool() {
    return pool;
  }

  /** Makes the table of a process' one lock, once. */
  synchronized void make(String table) throws SQLException {
    if (ready) {
      return;
    }
    try (Connection connection = pool.getConnection();
        Statement statement = connection.createStatement()) {
      if (!isThere(table.substring(0, table.indexOf('(')), statement)) {
        connection.setAutoCommit(false);
        server.apart(statement);
        statement.execute("CREATE TABLE IF NOT EXISTS " + table);
        connection.commit();
      }
    }
    ready = true;
  }

  /** Looked at first: who makes a table and is cut off would keep all others from looking. */
  private static boolean isThere(String name, Statement statement) throws SQLException {
    try {
      statement.execute("SELECT 1 FROM " + name + " WHERE 1 = 0");
      return true;
    } catch (SQLException error) {
      if (MISSING.contains(error.getSQLState())) {
        return false;
      }
      throw error;
    }
  }
}
