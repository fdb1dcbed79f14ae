package lockbench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The sidecar of the JVM's libraries: speaks docs/sidecar.md with one worker process of the bench.
 *
 * <p>It is given the name of a lock and, in its environment, where the worker listens. It connects,
 * says hello, and serves until that connection ends; then it ends at once, as if killed. Every
 * client has a thread of its own, in which all of its calls run: a thread is what Redisson and
 * Curator take for an owner.
 *
 * <p>No client is open before the first one has taken and given back a lock of its own for two
 * seconds, or LOCKBENCH_WARM_CYCLES times: a JVM that has just been started is measured as one that
 * has not.
 *
 * <p>Guarantees one answer per request. Does not guarantee that a call ends.
 */
public final class Sidecar {
  private static final int PROTOCOL = 1;
  private static final long WARM_NS = 2_000_000_000L;
  private static final int WARM_CYCLES = // 1000 are enough, if they are done sooner
      Optional.ofNullable(System.getenv("LOCKBENCH_WARM_CYCLES")).map(Integer::valueOf).orElse(1000);
  private static final ObjectMapper JSON = new ObjectMapper();

  private final OutputStream worker;
  private final Client.Maker maker;
  private final Map<Long, BlockingQueue<JsonNode>> seats = new HashMap<>();
  private final AtomicBoolean warming = new AtomicBoolean();
  private final CountDownLatch warm = new CountDownLatch(1);

  private Sidecar(OutputStream worker, Client.Maker maker) {
    this.worker = worker;
    this.maker = maker;
  }

  /** Run with a lock's name; with "warm" it only loads what it would need, and ends. */
  public static void main(String[] arguments) throws IOException {
    if (arguments[0].equals("warm")) {
      Warm.up();
      System.exit(0);
    }
    Locks.Lock lock = Locks.named(arguments[0]);
    String[] where = System.getenv("LOCKBENCH_SIDECAR_WORKER").split(":");
    Socket socket = new Socket(where[0], Integer.parseInt(where[1]));
    socket.setTcpNoDelay(true);
    Sidecar sidecar = new Sidecar(socket.getOutputStream(), lock.maker());
    ObjectNode hello = JSON.createObjectNode();
    hello.put("hello", PROTOCOL).put("library", lock.library()).put("version", lock.version());
    hello.put("word", System.getenv("LOCKBENCH_SIDECAR_WORD"));
    sidecar.write(hello.put("now_ns", System.nanoTime()));
    BufferedReader lines =
        new BufferedReader(
            new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
    try {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        sidecar.take(JSON.readTree(line));
      }
    } catch (IOException error) {
      // The worker is gone, or does not speak the protocol.
      System.err.println(error);
    }
    Runtime.getRuntime().halt(0);
  }

  private void take(JsonNode request) {
    if (request.get("call").asText().equals("ping")) {
      write(answer(request).put("said", "pong"));
      return;
    }
    if (request.get("call").asText().equals("stall")) {
      new Thread(() -> stall(request), "stall").start();
      return;
    }
    long number = request.get("client").asLong();
    switch (request.get("call").asText()) {
      case "open" -> open(number, request);
      case "close" -> seats.remove(number).add(request);
      default -> seats.get(number).add(request);
    }
  }

  /** Not a client's: it stops them all. */
  private void stall(JsonNode request) {
    try {
      write(answer(request).put("said", "stalled").put("longest_ns", Stall.once()));
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  private void open(long number, JsonNode request) {
    BlockingQueue<JsonNode> requests = new LinkedBlockingQueue<>();
    seats.put(number, requests);
    Thread seat = new Thread(() -> sit(number, request, requests), "client-" + number);
    seat.setDaemon(true);
    seat.start();
  }

  /** The life of one client. */
  private void sit(long number, JsonNode opening, BlockingQueue<JsonNode> requests) {
    Client client;
    try {
      client = maker.make(setup(number, opening));
      if (warming.compareAndSet(false, true)) {
        warmUp(client, milliseconds(opening, "ttl_s"));
      }
      warm.await();
    } catch (Throwable error) {
      error.printStackTrace();
      write(answer(opening).put("said", "failed").put("reason", Answer.named(error)));
      return;
    }
    write(answer(opening).put("said", "opened"));
    while (true) {
      JsonNode request;
      try {
        request = requests.take();
      } catch (InterruptedException error) {
        return;
      }
      Answer said;
      try {
        said = carryOut(client, request);
      } catch (Throwable error) {
        said = Answer.unknown(error);
      }
      ObjectNode line = answer(request).put("said", said.said());
      line.put("sent_ns", said.sentNs()).put("valid_until_ns", said.validUntilNs());
      write(line.put("fence", said.fence()).put("reason", said.reason()));
      if (request.get("call").asText().equals("close")) {
        return;
      }
    }
  }

  /** Ends at the first lock that is not granted: then there are no servers to warm up with. */
  private void warmUp(Client client, long ttlMs) throws InterruptedException {
    String key = "lockbench-warm-" + UUID.randomUUID();
    long endNs = System.nanoTime() + WARM_NS;
    try {
      for (int i = 0; i < WARM_CYCLES && System.nanoTime() < endNs; i++) {
        String hold = String.format("%016x", i);
        if (!client.acquire(key, hold, ttlMs, 0, false).said().equals("granted")) {
          return;
        }
        client.release(key, hold);
      }
      // Every lock of Redisson leaves a timer that is not ended by a release, but by finding nothing
      // to renew when its time has come.
      Thread.sleep(ttlMs / 3 + 100);
    } catch (InterruptedException error) {
      throw error;
    } catch (Exception error) {
      System.err.println("not warm: " + error);
    } finally {
      warm.countDown();
    }
  }

  private static Answer carryOut(Client client, JsonNode request) throws Exception {
    String key = request.path("key").asText();
    String hold = request.path("hold").asText();
    long ttlMs = milliseconds(request, "ttl_s");
    switch (request.get("call").asText()) {
      case "acquire":
        boolean shared = request.path("shared").asBoolean(false);
        return client.acquire(key, hold, ttlMs, milliseconds(request, "wait_s"), shared);
      case "release":
        return client.release(key, hold);
      case "extend":
        return client.extend(key, hold, ttlMs);
      default:
        client.close();
        return Answer.CLOSED;
    }
  }

  private Client.Setup setup(long number, JsonNode opening) {
    List<Client.Node> nodes = new ArrayList<>();
    for (JsonNode node : opening.get("nodes")) {
      nodes.add(new Client.Node(node.get(0).asText(), node.get(1).asInt()));
    }
    return new Client.Setup(
        nodes,
        milliseconds(opening, "timeout_s"),
        milliseconds(opening, "ttl_s"),
        opening.get("safe").asBoolean(),
        new Telling(number));
  }

  private static long milliseconds(JsonNode request, String name) {
    return Math.round(1000 * request.path(name).asDouble());
  }

  private static ObjectNode answer(JsonNode request) {
    return JSON.createObjectNode().put("id", request.get("id").asLong());
  }

  private void write(ObjectNode message) {
    try {
      byte[] line = (message + "\n").getBytes(StandardCharsets.UTF_8);
      synchronized (worker) {
        worker.write(line);
      }
    } catch (IOException error) {
      Runtime.getRuntime().halt(0); // the worker is gone
    }
  }

  private final class Telling implements Client.Tell {
    private final long client;

    Telling(long client) {
      this.client = client;
    }

    @Override
    public void extended(String hold, long sentNs, long validUntilNs) {
      ObjectNode event = event("extended", hold).put("sent_ns", sentNs);
      event.put("acknowledged_ns", System.nanoTime());
      write(event.put("valid_until_ns", validUntilNs));
    }

    @Override
    public void lost(String hold) {
      write(event("lost", hold));
    }

    private ObjectNode event(String what, String hold) {
      return JSON.createObjectNode().put("event", what).put("client", client).put("hold", hold);
    }
  }
}
