package lockbench;

import java.util.Map;

/** ShedLock's lock provider for JDBC, on two databases, and the owner that it takes by itself. */
public final class ShedLockLibrary implements Library {
  @Override
  public String artifact() {
    return "net.javacrumbs.shedlock:shedlock-provider-jdbc-template";
  }

  @Override
  public Map<String, Client.Maker> locks() {
    return Map.of(
        "shedlock-postgres", setup -> new ShedLocks(Database.Server.POSTGRES, setup, false),
        "shedlock-postgres-one-host", setup -> new ShedLocks(Database.Server.POSTGRES, setup, true),
        "shedlock-mariadb", setup -> new ShedLocks(Database.Server.MARIADB, setup, false));
  }
}
