package lockbench;

import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
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
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.NatMapper;
import org.redisson.config.SingleServerConfig;
import org.redisson.misc.RedisURI;

/**
 * Redisson's locks. As an application has it: one RedissonClient per server and process, shared by
 * all threads, at its defaults but for the watchdog's time, which is the lease (30 s else), and, where
 * the bench says so, the connections that it opens in advance. An owner is that client's id and a
 * thread, so every client of the bench is a thread.
 *
 * <p>Safe: the client timeout on every request, and no retries.
 *
 * <p>The promise of one lock is the lease, from when the last script that was answered and set it was
 * written to a connection: the one that takes the lock (RedissonLock.tryLockInnerAsync and its kin),
 * and for several locks at once, RedissonExpirable.expireAsync, with which RedissonMultiLock.tryLock
 * ends (4.7.0; before it, the lease is twice the wait). That script names no owner, and a key of
 * somebody else's is lengthened as well; so it counts where its answer came while the lease before it
 * lasted. Where it finds no key that lock is over. What several locks promise lasts while enough of
 * them are kept: all, or for RedissonRedLock most of all servers (minLocksAmount). A renewal
 * by the watchdog counts once it is answered. Redisson tells its user none of these, and no loss:
 * what is lost here is lost without notice.
 */
final class RedissonLocks implements Client {
  static final Maker WATCHED = single(RedissonClient::getLock, false);
  static final Maker LEASED = single(RedissonClient::getLock, true);
  static final Maker FAIR = single(RedissonClient::getFairLock, true);
  static final Maker FENCED = single(RedissonClient::getFencedLock, true);
  static final Maker SPIN = single(RedissonClient::getSpinLock, true);
  private static final Shared<Server> SHARED = new Shared<>(server -> server.client.shutdown());
  private static final int DATA_NODES = 2; // of a sentinel topology; the Sentinels follow
  private static final String MASTER = "lockbench";

  private final List<Server> servers;
  private final List<Sends> sends;
  private final int enough; // so many of the servers must keep it
  private final Function<String, RLock> make;
  private final boolean leased;
  private final Map<String, RLock> holds = new HashMap<>();

  /** One of the locks that a client offers. */
  private interface Kind {
    RLock of(RedissonClient client, String key);
  }

  /** A client of one server, or of one deployment, and what its owners sent, by their names. */
  private record Server(String name, RedissonClient client, Map<String, Sends> owners) {}

  private RedissonLocks(
      Setup setup,
      List<Server> servers,
      int enough,
      Function<String, RLock> make,
      boolean leased) {
    this.servers = servers;
    this.enough = enough;
    this.make = make;
    this.leased = leased;
    this.sends = servers.stream().map(server -> new Sends(setup)).toList();
    for (int i = 0; i < servers.size(); i++) {
      String id = servers.get(i).client.getId();
      servers.get(i).owners.put(id + ":" + Thread.currentThread().threadId(), sends.get(i));
    }
  }

  /** A lock of one server; without a lease time, its watchdog renews it. */
  private static Maker single(Kind kind, boolean leased) {
    return setup -> one(setup, single(setup, setup.nodes().get(0)), kind, leased);
  }

  private static Client one(Setup setup, Server server, Kind kind, boolean leased) {
    return new RedissonLocks(
        setup, List.of(server), 1, key -> kind.of(server.client, key), leased);
  }

  static Client all(Setup setup) {
    return several(setup, setup.nodes().size(), RedissonMultiLock::new);
  }

  @SuppressWarnings("deprecation")
  static Client majority(Setup setup) {
    return several(setup, setup.nodes().size() / 2 + 1, RedissonRedLock::new);
  }

  /** One lock of a lock on every server. */
  private static Client several(Setup setup, int enough, Function<RLock[], RLock> make) {
    List<Server> servers = new ArrayList<>();
    try {
      setup.nodes().forEach(node -> servers.add(single(setup, node)));
    } catch (RuntimeException error) {
      leave(servers);
      throw error;
    }
    return new RedissonLocks(
        setup, servers, enough, key -> make.apply(onEach(servers, key)), true);
  }

  static Client sentinel(Setup setup, boolean synced) {
    List<Node> sentinels = setup.nodes().subList(DATA_NODES, setup.nodes().size());
    Server server =
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
    return one(setup, server, RedissonClient::getLock, false);
  }

  static Client cluster(Setup setup) {
    Server server =
        shared(
            setup,
            "cluster",
            config ->
                config
                    .useClusterServers()
                    .setNatMapper(ofGroup(setup))
                    .addNodeAddress(addresses(setup.nodes())));
    return one(setup, server, RedissonClient::getLock, false);
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
    List<Lease> taken =
        sends.stream()
            .map(each -> each.lease(key))
            .filter(Objects::nonNull)
            .sorted(Comparator.comparing(Lease::untilNs))
            .toList();
    Lease decisive = taken.get(Math.max(0, taken.size() - enough));
    return Answer.granted(decisive.sentNs, decisive.untilNs, fence);
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
    holds.clear();
    leave(servers);
  }

  // --- clients -----------------------------------------------------------------------------------

  private static void leave(List<Server> servers) {
    servers.forEach(server -> SHARED.leave(server.name));
  }

  private static RLock[] onEach(List<Server> servers, String key) {
    return servers.stream().map(server -> server.client.getLock(key)).toArray(RLock[]::new);
  }

  private static Server single(Setup setup, Node node) {
    return shared(
        setup, node.toString(), config -> config.useSingleServer().setAddress("redis://" + node));
  }

  private static Server shared(
      Setup setup, String name, Function<Config, BaseConfig<?>> servers) {
    return SHARED.join(
        name,
        () -> {
          Config config = new Config();
          config.setLockWatchdogTimeout(setup.ttlMs());
          Map<String, Sends> owners = new ConcurrentHashMap<>();
          config.setNettyHook(new Listening(owners));
          BaseConfig<?> limits = servers.apply(config);
          Client.IDLE_CONNECTIONS.ifPresent(count -> keep(count, limits));
          if (setup.safe()) {
            int timeoutMs = (int) setup.timeoutMs();
            limits.setTimeout(timeoutMs).setConnectTimeout(timeoutMs).setRetryAttempts(0);
          }
          return new Server(name, Redisson.create(config), owners);
        });
  }

  private static void keep(int count, BaseConfig<?> servers) {
    if (servers instanceof SingleServerConfig one) {
      one.setConnectionMinimumIdleSize(count);
    } else if (servers instanceof BaseMasterSlaveServersConfig<?> several) {
      several.setMasterConnectionMinimumIdleSize(count).setSlaveConnectionMinimumIdleSize(count);
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

  /** Until when one server keeps one lock. */
  private record Lease(long sentNs, long untilNs) {}

  /** A script that sets a lease, and what came of it. */
  private record Script(
      boolean takes,
      long sentNs,
      long leaseMs,
      CompletableFuture<?> answer,
      CompletableFuture<Reply> reply) {}

  private record Reply(long atNs, Object said, Throwable error) {}

  /** What one owner sent to one server, by key, in its order. */
  private static final class Sends {
    private final Setup setup;
    private final Map<String, List<Script>> asked = new ConcurrentHashMap<>();
    private final Map<String, String> held = new ConcurrentHashMap<>();

    Sends(Setup setup) {
      this.setup = setup;
    }

    void hold(String key, String hold) {
      held.put(key, hold);
      asked.put(key, new CopyOnWriteArrayList<>());
    }

    void forget(String key) {
      held.remove(key);
      asked.remove(key);
    }

    /** Null where this server's lock was not taken. */
    Lease lease(String key) {
      Lease lease = null;
      for (Script script : asked.get(key)) {
        // Whoever completes the answer may have woken this thread before it made the reply.
        Reply reply = script.answer.isDone() ? script.reply.join() : null;
        Lease set = new Lease(script.sentNs, script.sentNs + script.leaseMs * 1_000_000);
        if (reply == null || reply.error != null) {
          // It may have taken effect all the same, and may be sent once more.
          lease = !script.takes && lease != null ? earlier(lease, set) : lease;
        } else if (script.takes) {
          lease = taken(reply.said) ? set : lease;
        } else if (lease != null && !Boolean.TRUE.equals(reply.said)) {
          lease = new Lease(script.sentNs, script.sentNs); // there was no key
        } else if (lease != null && reply.atNs < lease.untilNs) {
          lease = set;
        }
      }
      return lease;
    }

    private static Lease earlier(Lease one, Lease other) {
      return one.untilNs <= other.untilNs ? one : other;
    }

    /** Null, or of a fenced lock -1 and the fence; else how long another one's lease lasts. */
    private static boolean taken(Object said) {
      return said == null
          || said instanceof List<?> several && !several.isEmpty() && several.get(0).equals(-1L);
    }

    void setsLease(String key, boolean takes, Object leaseMs, CommandData<?, ?> command) {
      List<Script> scripts = asked.get(key);
      if (scripts == null) {
        return;
      }
      long nowNs = System.nanoTime();
      CompletableFuture<?> answer = command.getPromise();
      CompletableFuture<Reply> reply =
          answer.handle((said, error) -> new Reply(System.nanoTime(), said, error));
      scripts.removeIf(Sends::refused);
      long milliseconds = Long.parseLong(String.valueOf(leaseMs));
      scripts.add(new Script(takes, nowNs, milliseconds, answer, reply));
      String hold = held.get(key);
      reply.thenAccept(made -> renewed(key, hold, nowNs, made.said));
    }

    private static boolean refused(Script script) {
      return script.takes
          && script.reply.isDone()
          && script.reply.join().error == null
          && !taken(script.reply.join().said);
    }

    /**
     * The watchdog's script, and no other, answers with the keys that it found. One that was sent for
     * a hold may be answered when the same owner asks for the next.
     */
    private void renewed(String key, String hold, long sentNs, Object said) {
      boolean stands = hold != null && hold.equals(held.get(key));
      if (stands && said instanceof Collection<?> found && found.contains(key)) {
        setup.tell().extended(hold, sentNs, sentNs + setup.ttlMs() * 1_000_000);
      }
    }

    void givesBack(String key) {
      asked.computeIfPresent(key, (same, scripts) -> new CopyOnWriteArrayList<>());
    }
  }

  private static final class Listening implements NettyHook {
    private final Map<String, Sends> owners;

    Listening(Map<String, Sends> owners) {
      this.owners = owners;
    }

    @Override
    public void afterBoostrapInitialization(Bootstrap bootstrap) {}

    @Override
    public void afterChannelInitialization(Channel channel) {
      channel.pipeline().addLast(new Writes(owners));
    }
  }

  private static final class Writes extends ChannelOutboundHandlerAdapter {
    private final Map<String, Sends> owners;

    Writes(Map<String, Sends> owners) {
      this.owners = owners;
    }

    @Override
    public void write(ChannelHandlerContext context, Object message, ChannelPromise promise)
        throws Exception {
      if (message instanceof CommandData<?, ?> one) {
        look(one);
      } else if (message instanceof CommandsData several) {
        several.getCommands().forEach(this::look);
      }
      super.write(context, message, promise);
    }

    /**
     * Scripts are script, number of keys, keys, arguments. What takes a lock has the lease and the
     * owner for its first arguments, and so has the watchdog's, with one owner per key; what gives
     * one back has the owner later. All are about their first key but the watchdog's. What lengthens
     * several locks has a lease and nothing ("").
     */
    private void look(CommandData<?, ?> command) {
      if (!command.getCommand().getName().startsWith("EVAL")) {
        return;
      }
      Object[] all = command.getParams();
      int keys = Integer.parseInt(String.valueOf(all[1]));
      int begin = 2 + keys;
      String first = String.valueOf(all[2]);
      if (keys == 1 && all.length == begin + 2 && all[begin + 1].equals("")) {
        owners.values().forEach(each -> each.setsLease(first, false, all[begin], command));
        return;
      }
      boolean paired = all.length - begin == keys + 1;
      for (int i = begin + 1; i < all.length; i++) {
        Sends owner = all[i] instanceof String name ? owners.get(name) : null;
        if (owner != null && (paired || i == begin + 1)) {
          String key = paired ? String.valueOf(all[2 + i - begin - 1]) : first;
          owner.setsLease(key, true, all[begin], command);
        } else if (owner != null) {
          owner.givesBack(first);
        }
      }
    }
  }
}
