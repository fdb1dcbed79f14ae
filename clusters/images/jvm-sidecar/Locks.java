package lockbench;

/** Every lock of this sidecar, by the name that the bench calls it. */
final class Locks {
  private static final String CURATOR = "org.apache.curator:curator-recipes";

  /** A library's name and version, as artifacts are named, and how a client of it is made. */
  record Library(String name, String version, Client.Maker maker) {}

  private Locks() {}

  static Library named(String lock) {
    return switch (lock) {
      case "redisson-rlock" -> redisson(RedissonLocks::watched);
      case "redisson-rlock-lease" -> redisson(RedissonLocks::leased);
      case "redisson-fair" -> redisson(RedissonLocks::fair);
      case "redisson-fenced" -> redisson(RedissonLocks::fenced);
      case "redisson-spin" -> redisson(RedissonLocks::spin);
      case "redisson-multilock" -> redisson(RedissonLocks::all);
      case "redisson-redlock" -> redisson(RedissonLocks::majority);
      case "redisson-rlock-sentinel" -> redisson(s -> RedissonLocks.sentinel(s, true));
      case "redisson-rlock-sentinel-unsynced" -> redisson(s -> RedissonLocks.sentinel(s, false));
      case "redisson-rlock-cluster" -> redisson(RedissonLocks::cluster);
      case "curator-mutex" -> curator(s -> new CuratorLocks(s, CuratorLocks.MUTEX, true));
      case "curator-mutex-no-listener" ->
          curator(s -> new CuratorLocks(s, CuratorLocks.MUTEX, false));
      case "curator-semaphore" -> curator(s -> new CuratorLocks(s, CuratorLocks.SEMAPHORE, true));
      case "curator-read-write" -> curator(s -> new CuratorLocks(s, CuratorLocks.READ_WRITE, true));
      case "jetcd" ->
          new Library("io.etcd:jetcd-core", version(io.etcd.jetcd.Client.class), JetcdLock::new);
      case "nothing" -> new Library("nothing", "1", setup -> new Nothing());
      default -> throw new IllegalArgumentException("no lock is called " + lock);
    };
  }

  /** Grants whatever is asked, so that the sidecar's own cost can be measured. */
  private static final class Nothing implements Client {
    @Override
    public Answer acquire(String key, String hold, long ttlMs, long waitMs, boolean shared) {
      return Answer.granted(1, 2, null);
    }

    @Override
    public Answer release(String key, String hold) {
      return Answer.RELEASED;
    }

    @Override
    public void close() {}
  }

  private static Library redisson(Client.Maker maker) {
    return new Library("org.redisson:redisson", version(org.redisson.Redisson.class), maker);
  }

  private static Library curator(Client.Maker maker) {
    Class<?> one = org.apache.curator.framework.recipes.locks.InterProcessMutex.class;
    return new Library(CURATOR, version(one), maker);
  }

  /** From the name of the file that the class is in: artifact-version.jar. */
  private static String version(Class<?> one) {
    String file = one.getProtectionDomain().getCodeSource().getLocation().getPath();
    return file.replaceFirst(".*-(\\d[^/]*)\\.jar$", "$1");
  }
}
