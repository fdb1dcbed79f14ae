package lockbench;

import java.util.Map;

/** Redisson's locks by name. */
public final class RedissonLibrary implements Library {
  @Override
  public String artifact() {
    return "org.redisson:redisson";
  }

  @Override
  public Map<String, Client.Maker> locks() {
    return Map.of(
        "redisson-rlock", RedissonLocks.WATCHED,
        "redisson-rlock-lease", RedissonLocks.LEASED,
        "redisson-fair", RedissonLocks.FAIR,
        "redisson-fenced", RedissonLocks.FENCED,
        "redisson-spin", RedissonLocks.SPIN,
        "redisson-multilock", RedissonLocks::all,
        "redisson-redlock", RedissonLocks::majority,
        "redisson-rlock-sentinel", setup -> RedissonLocks.sentinel(setup, true),
        "redisson-rlock-sentinel-unsynced", setup -> RedissonLocks.sentinel(setup, false),
        "redisson-rlock-cluster", RedissonLocks::cluster);
  }
}
