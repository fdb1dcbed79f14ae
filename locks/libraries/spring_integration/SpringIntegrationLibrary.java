package lockbench;

import java.util.Map;

/** Spring Integration's lock registry for JDBC, on two databases. */
public final class SpringIntegrationLibrary implements Library {
  @Override
  public String artifact() {
    return "org.springframework.integration:spring-integration-jdbc";
  }

  @Override
  public Map<String, Client.Maker> locks() {
    return Map.of(
        "spring-jdbc-postgres", setup -> new SpringLocks(Database.Server.POSTGRES, setup),
        "spring-jdbc-mariadb", setup -> new SpringLocks(Database.Server.MARIADB, setup));
  }
}
