package lockbench;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.api.LeaseKeepAliveRequest;
import io.etcd.jetcd.api.LeaseKeepAliveResponse;
import io.etcd.jetcd.lease.LeaseGrantResponse;
import io.etcd.jetcd.lock.LockResponse;
import io.etcd.jetcd.support.CloseableClient;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.stub.StreamObserver;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * jetcd's Lock: etcd's own lock service, a lease per acquire that jetcd keeps alive, one jetcd
 * client per process. The service has no try and no limit for a wait: the lease of whoever gives up
 * is revoked, which takes its place in the queue away.
 *
 * <p>The promise is the lease, from when the last acknowledged keep-alive was sent.
 */
final class JetcdLock implements Client {
  private static final long TRY_MS = 100;
  private static final Map<Long, Lease> LEASES = new ConcurrentHashMap<>();
  private static final Shared<io.etcd.jetcd.Client> SHARED =
      new Shared<>(io.etcd.jetcd.Client::close);

  private final Setup setup;
  private final io.etcd.jetcd.Client client;
  private final Map<String, Lease> holds = new HashMap<>();

  JetcdLock(Setup setup) {
    this.setup = setup;
    this.client = SHARED.join(setup.nodes(), () -> made(setup));
  }

  private static io.etcd.jetcd.Client made(Setup setup) {
    String[] nodes = setup.nodes().stream().map(node -> "http://" + node).toArray(String[]::new);
    return io.etcd.jetcd.Client.builder().endpoints(nodes).interceptor(new Beats()).build();
  }

  @Override
  public Answer acquire(String key, String hold, long ttlMs, long waitMs, boolean shared)
      throws Exception {
    long sentNs = System.nanoTime();
    long ttlS = Math.ceilDiv(ttlMs, 1000);
    LeaseGrantResponse given;
    try {
      given = soon(client.getLeaseClient().grant(ttlS, setup.timeoutMs(), TimeUnit.MILLISECONDS));
    } catch (Exception error) {
      return Answer.denied("no-effect: there is no lease: " + Answer.named(error));
    }
    Lease lease = new Lease(given.getID(), hold, sentNs, sentNs + given.getTTL() * 1_000_000_000);
    LEASES.put(lease.id, lease);
    lease.keeping = client.getLeaseClient().keepAlive(lease.id, lease);
    CompletableFuture<LockResponse> asked =
        client.getLockClient().lock(bytes("/lockbench/" + key), lease.id);
    try {
      lease.key = asked.get(waitMs > 0 ? waitMs : TRY_MS, TimeUnit.MILLISECONDS).getKey();
    } catch (TimeoutException error) {
      asked.cancel(true);
      end(lease);
      return Answer.denied((waitMs > 0 ? "gave-up" : "held") + ": not granted in time");
    } catch (Exception error) {
      end(lease);
      return Answer.denied("gave-up: " + Answer.named(error));
    }
    holds.put(hold, lease);
    return lease.granted();
  }

  @Override
  public Answer release(String key, String hold) throws Exception {
    Lease lease = holds.remove(hold);
    if (lease == null) {
      return Answer.NOT_HELD;
    }
    lease.held = false;
    try {
      soon(client.getLockClient().unlock(lease.key));
    } finally {
      end(lease); // or it would be kept alive, and the lock with it
    }
    return Answer.RELEASED;
  }

  @Override
  public void close() {
    // As where each client has its own: what it holds is kept alive no longer.
    holds.values().forEach(this::forget);
    holds.clear();
    SHARED.leave(setup.nodes());
  }

  /** Throws where the lease may still live. */
  private void end(Lease lease) throws Exception {
    forget(lease);
    soon(client.getLeaseClient().revoke(lease.id));
  }

  private void forget(Lease lease) {
    lease.held = false;
    lease.keeping.close();
    LEASES.remove(lease.id);
  }

  private <T> T soon(CompletableFuture<T> asked) throws Exception {
    return asked.get(setup.timeoutMs(), TimeUnit.MILLISECONDS);
  }

  private static ByteSequence bytes(String text) {
    return ByteSequence.from(text, StandardCharsets.UTF_8);
  }

  /** A lease, whom it is for, and until when it is promised. */
  private final class Lease
      implements StreamObserver<io.etcd.jetcd.lease.LeaseKeepAliveResponse> {
    private final long id;
    private final String hold;
    private long sentNs;
    private long untilNs;
    private volatile boolean held; // else there is nothing to lengthen or to lose
    private CloseableClient keeping;
    private ByteSequence key;

    Lease(long id, String hold, long sentNs, long untilNs) {
      this.id = id;
      this.hold = hold;
      this.sentNs = sentNs;
      this.untilNs = untilNs;
    }

    synchronized Answer granted() {
      held = true;
      return Answer.granted(sentNs, untilNs, null);
    }

    synchronized void acknowledged(long atNs, long ttlS) {
      sentNs = atNs;
      untilNs = atNs + ttlS * 1_000_000_000;
      if (held) {
        setup.tell().extended(hold, sentNs, untilNs);
      }
    }

    @Override
    public void onNext(io.etcd.jetcd.lease.LeaseKeepAliveResponse response) {}

    @Override
    public void onError(Throwable error) {
      onCompleted();
    }

    @Override
    public void onCompleted() {
      if (held) {
        setup.tell().lost(hold);
      }
    }
  }

  /** Notes when each keep-alive was sent; a stream answers in order. */
  private static final class Beats implements ClientInterceptor {
    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(
        MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
      ClientCall<Q, A> call = next.newCall(method, options);
      if (!method.getFullMethodName().equals("etcdserverpb.Lease/LeaseKeepAlive")) {
        return call;
      }
      Map<Long, Queue<Long>> sent = new ConcurrentHashMap<>();
      return new SimpleForwardingClientCall<>(call) {
        @Override
        public void start(Listener<A> listener, Metadata headers) {
          super.start(
              new SimpleForwardingClientCallListener<A>(listener) {
                @Override
                public void onMessage(A message) {
                  if (message instanceof LeaseKeepAliveResponse said) {
                    answered(sent, said);
                  }
                  super.onMessage(message);
                }
              },
              headers);
        }

        @Override
        public void sendMessage(Q message) {
          if (message instanceof LeaseKeepAliveRequest asked) {
            sent.computeIfAbsent(asked.getID(), none -> new ConcurrentLinkedQueue<>())
                .add(System.nanoTime());
          }
          super.sendMessage(message);
        }
      };
    }

    private static void answered(Map<Long, Queue<Long>> sent, LeaseKeepAliveResponse said) {
      Queue<Long> waiting = sent.get(said.getID());
      Long atNs = waiting == null ? null : waiting.poll();
      Lease lease = LEASES.get(said.getID());
      if (atNs != null && lease != null && said.getTTL() > 0) {
        lease.acknowledged(atNs, said.getTTL());
      }
    }
  }
}
