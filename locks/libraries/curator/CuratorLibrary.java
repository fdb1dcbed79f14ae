package lockbench;

import java.util.Map;

/** Curator's locks by name. */
public final class CuratorLibrary implements Library {
  @Override
  public String artifact() {
    return "org.apache.curator:curator-recipes";
  }

  @Override
  public Map<String, Client.Maker> locks() {
    return Map.of(
        "curator-mutex", setup -> new CuratorLocks(setup, CuratorLocks.MUTEX, true),
        "curator-mutex-no-listener", setup -> new CuratorLocks(setup, CuratorLocks.MUTEX, false),
        "curator-semaphore", setup -> new CuratorLocks(setup, CuratorLocks.SEMAPHORE, true),
        "curator-read-write", setup -> new CuratorLocks(setup, CuratorLocks.READ_WRITE, true));
  }
}
