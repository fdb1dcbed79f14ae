package lockbench;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.List;

/**
 * Loads the classes that a client needs, without any server, so that the JVM can archive them when
 * the image is built. What fails here fails for want of a server.
 */
final class Warm {
  private static final List<Client.Node> NOBODY = List.of(new Client.Node("127.0.0.1", 9));
  private static final Duration PATIENCE = Duration.ofSeconds(15);

  private Warm() {}

  static void up() throws java.io.IOException {
    ObjectMapper json = new ObjectMapper();
    System.err.println(json.createObjectNode().put("id", 1) + " " + json.readTree("{\"a\":[1.5]}"));
    Client.Tell nothing =
        new Client.Tell() {
          @Override
          public void extended(String hold, long sentNs, long validUntilNs) {}

          @Override
          public void lost(String hold) {}
        };
    Client.Setup setup = new Client.Setup(NOBODY, 200, 1000, false, nothing);
    List<Thread> trials =
        Locks.names().stream()
            .map(lock -> Thread.ofPlatform().daemon().start(() -> attempt(lock, setup)))
            .toList();
    long endNs = System.nanoTime() + PATIENCE.toNanos();
    try {
      for (Thread trial : trials) {
        trial.join(Duration.ofNanos(endNs - System.nanoTime()));
      }
    } catch (InterruptedException error) {
      return;
    }
  }

  private static void attempt(String lock, Client.Setup setup) {
    try {
      Client client = Locks.named(lock).maker().make(setup);
      System.err.println(lock + ": " + client.acquire("k", "0", 1000, 0, false));
    } catch (Throwable error) {
      System.err.println(lock + ": " + Answer.named(error));
    }
  }
}
