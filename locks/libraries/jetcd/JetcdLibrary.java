package lockbench;

import java.util.Map;

/** jetcd's one lock. */
public final class JetcdLibrary implements Library {
  @Override
  public String artifact() {
    return "io.etcd:jetcd-core";
  }

  @Override
  public Map<String, Client.Maker> locks() {
    return Map.of("jetcd", JetcdLock::new);
  }
}
