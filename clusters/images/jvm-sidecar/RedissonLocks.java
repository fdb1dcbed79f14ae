package lockbench;

import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.NettyHook;
import org.redisson.client.protocol.CommandData;
import org.redisson.client.protocol.CommandsData;
import org.redisson.config.BaseConfig;
import org.redisson.config.Config;
import org.redisson.config.NatMapper;
import org.redisson.misc.RedisURI;

/**
 * Redisson's locks. As an application has it: one RedissonClient per server and process, shared by
 * all threads, at its defaults but for the watchdog's time, which is the lease (30 s else). An owner
 * is that client's id and a thread, so every client of the bench is a thread.
 *
 * <p>Safe: the client timeout on every request, and no retries.
 *
 * <p>The promise is the lease, from when the last script that named this owner was written to a
 * connection; a renewal by the watchdog counts once it is answered. Redisson tells its user neither
 * the one nor the other, and no loss: what is lost here is lost without notice.
 */
final class RedissonLocks implements Client {
  private static final Map<String, RedissonClient> SHARED = new HashMap<>();
  private static final Map<String, Sends> OWNERS = new ConcurrentHashMap<>();
  private static final int DATA_NODES = 2; // of a sentinel topology; the Sentinels follow
  private static final String MASTER = "lockbench";

  private final List<Sends> sends;
  private final Function<String, RLock> make;
  private final boolean leased;
  private final Map<String, RLock> holds = new HashMap<>();

  private RedissonLocks(
      Setup setup, List<RedissonClient> clients, Function<String, RLock> make, boolean leased) {
    this.make = make;
    this.leased = leased;
    this.sends = clients.stream().map(client -> new Sends(setup)).toList();
    for (int i = 0; i < clients.size(); i++) {
      OWNERS.put(clients.get(i).getId() + ":" + Thread.currentThread().threadId(), sends.get(i));
    }
  }

  static Client watched(Setup setup) {
    RedissonClient client = single(setup, setup.nodes().get(0));
    return new RedissonLocks(setup, List.of(client), client::getLock, false);
  }

  static Client leased(Setup setup) {
    RedissonClient client = single(setup, setup.nodes().get(0));
    return new RedissonLocks(setup, List.of(client), client::getLock, true);
  }

  static Client fair(Setup setup) {
    RedissonClient client = single(setup, setup.nodes().get(0));
    return new RedissonLocks(setup, List.of(client), client::getFairLock, true);
  }

  static Client fenced(Setup setup) {
    RedissonClient client = single(setup, setup.nodes().get(0));
    return new RedissonLocks(setup, List.of(client), client::getFencedLock, true);
  }

  static Client spin(Setup setup) {
    RedissonClient client = single(setup, setup.nodes().get(0));
    return new RedissonLocks(setup, List.of(client), client::getSpinLock, true);
  }

  static Client all(Setup setup) {
    List<RedissonClient> clients = everyNode(setup);
    return new RedissonLocks(
        setup, clients, key -> new RedissonMultiLock(onEach(clients, key)), true);
  }

  @SuppressWarnings("deprecation")
  static Client majority(Setup setup) {
    List<RedissonClient> clients = everyNode(setup);
    return new RedissonLocks(
        setup, clients, key -> new RedissonRedLock(onEach(clients, key)), true);
  }

  static Client sentinel(Setup setup, boolean synced) {
    List<Node> sentinels = setup.nodes().subList(DATA_NODES, setup.nodes().size());
    RedissonClient client =
        shared(
            setup,
            "sentinel",
            config ->
                config
                    .setCheckLockSyncedSlaves(synced)
                    .useSentinelServers()
                    .setMasterName(MASTER)
                    .setNatMapper(ofGroup(setup))
                    .addSentinelAddress(addresses(sentinels)));
    return new RedissonLocks(setup, List.of(client), client::getLock, false);
  }

  static Client cluster(Setup setup) {
    RedissonClient client =
        shared(
            setup,
            "cluster",
            config ->
                config
                    .useClusterServers()
                    .setNatMapper(ofGroup(setup))
                    .addNodeAddress(addresses(setup.nodes())));
    return new RedissonLocks(setup, List.of(client), client::getLock, false);
  }

  @Override
  public Answer acquire(String key, String hold, long ttlMs, long waitMs, boolean shared)
      throws InterruptedException {
    RLock lock = make.apply(key);
    long leaseMs = leased ? ttlMs : -1;
    sends.forEach(each -> each.hold(key, hold));
    Long fence = null;
    boolean got;
    if (lock instanceof RFencedLock fenced) {
      fence = fenced.tryLockAndGetToken(waitMs, leaseMs, TimeUnit.MILLISECONDS);
      got = fence != null;
    } else {
      got = lock.tryLock(waitMs, leaseMs, TimeUnit.MILLISECONDS);
    }
    if (!got) {
      sends.forEach(each -> each.forget(key));
      return Answer.denied((waitMs > 0 ? "gave-up" : "held") + ": tryLock returned false");
    }
    holds.put(hold, lock);
    long sentNs = sends.stream().mapToLong(each -> each.lastNs(key)).min().orElseThrow();
    return Answer.granted(sentNs, sentNs + ttlMs * 1_000_000, fence);
  }

  @Override
  public Answer release(String key, String hold) {
    RLock lock = holds.remove(hold);
    if (lock == null) {
      return Answer.NOT_HELD;
    }
    sends.forEach(each -> each.forget(key));
    try {
      lock.unlock();
    } catch (IllegalMonitorStateException error) {
      return Answer.NOT_HELD;
    }
    return Answer.RELEASED;
  }

  @Override
  public void close() {
    holds.clear(); // the connections are the process'
  }

  // --- clients -----------------------------------------------------------------------------------

  private static RLock[] onEach(List<RedissonClient> clients, String key) {
    return clients.stream().map(client -> client.getLock(key)).toArray(RLock[]::new);
  }

  private static List<RedissonClient> everyNode(Setup setup) {
    return setup.nodes().stream().map(node -> single(setup, node)).toList();
  }

  private static RedissonClient single(Setup setup, Node node) {
    return shared(
        setup, node.toString(), config -> config.useSingleServer().setAddress("redis://" + node));
  }

  private static RedissonClient shared(
      Setup setup, String name, Function<Config, BaseConfig<?>> servers) {
    synchronized (SHARED) {
      return SHARED.computeIfAbsent(
          name,
          none -> {
            Config config = new Config();
            config.setLockWatchdogTimeout(setup.ttlMs());
            config.setNettyHook(new Listening());
            BaseConfig<?> limits = servers.apply(config);
            if (setup.safe()) {
              int timeoutMs = (int) setup.timeoutMs();
              limits.setTimeout(timeoutMs).setConnectTimeout(timeoutMs).setRetryAttempts(0);
            }
            return Redisson.create(config);
          });
    }
  }

  private static String[] addresses(List<Node> nodes) {
    return nodes.stream().map(node -> "redis://" + node).toArray(String[]::new);
  }

  /** Servers tell addresses of their own; the port says which node is meant. */
  private static NatMapper ofGroup(Setup setup) {
    Map<Integer, String> hosts =
        setup.nodes().stream().collect(Collectors.toMap(Node::port, Node::host));
    return told ->
        new RedisURI(
            told.getScheme(), hosts.getOrDefault(told.getPort(), told.getHost()), told.getPort());
  }

  // --- when something was sent -------------------------------------------------------------------

  /** What one owner sent to one server, by key. */
  private static final class Sends {
    private final Setup setup;
    private final Map<String, Long> last = new ConcurrentHashMap<>();
    private final Map<String, String> held = new ConcurrentHashMap<>();

    Sends(Setup setup) {
      this.setup = setup;
    }

    void hold(String key, String hold) {
      held.put(key, hold);
    }

    void forget(String key) {
      held.remove(key);
      last.remove(key);
    }

    long lastNs(String key) {
      return last.get(key);
    }

    void sent(String key, long nowNs, CommandData<?, ?> command) {
      if (!held.containsKey(key)) {
        return;
      }
      last.put(key, nowNs);
      command
          .getPromise()
          .thenAccept(
              said -> {
                // The watchdog's script answers with the keys that it found.
                String hold = held.get(key);
                if (hold != null && said instanceof Collection<?> found && found.contains(key)) {
                  setup.tell().extended(hold, nowNs, nowNs + setup.ttlMs() * 1_000_000);
                }
              });
    }
  }

  private static final class Listening implements NettyHook {
    @Override
    public void afterBoostrapInitialization(Bootstrap bootstrap) {}

    @Override
    public void afterChannelInitialization(Channel channel) {
      channel.pipeline().addLast(new Writes());
    }
  }

  private static final class Writes extends ChannelOutboundHandlerAdapter {
    @Override
    public void write(ChannelHandlerContext context, Object message, ChannelPromise promise)
        throws Exception {
      if (message instanceof CommandData<?, ?> one) {
        look(one);
      } else if (message instanceof CommandsData several) {
        several.getCommands().forEach(Writes::look);
      }
      super.write(context, message, promise);
    }

    /**
     * Scripts are script, number of keys, keys, arguments. That of the watchdog has one owner per
     * key, after the time to live; all others are about their first key.
     */
    private static void look(CommandData<?, ?> command) {
      if (!command.getCommand().getName().startsWith("EVAL")) {
        return;
      }
      Object[] all = command.getParams();
      int keys = Integer.parseInt(String.valueOf(all[1]));
      int begin = 2 + keys;
      boolean paired = all.length - begin == keys + 1;
      for (int i = begin; i < all.length; i++) {
        Sends owner = all[i] instanceof String name ? OWNERS.get(name) : null;
        if (owner != null) {
          Object key = all[2 + (paired ? i - begin - 1 : 0)];
          owner.sent(String.valueOf(key), System.nanoTime(), command);
        }
      }
    }
  }
}
