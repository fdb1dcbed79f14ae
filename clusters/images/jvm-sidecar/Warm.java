package lockbench;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;

/**
 * Loads the classes that a client needs, without any server, so that the JVM can archive them when
 * the image is built. What fails here fails for want of a server.
 */
final class Warm {
  private static final List<Client.Node> NOBODY = List.of(new Client.Node("127.0.0.1", 9));

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
    for (String lock : List.of("redisson-rlock", "redisson-fenced", "curator-mutex", "jetcd")) {
      Client.Setup setup = new Client.Setup(NOBODY, 200, 1000, false, nothing);
      Thread trial = new Thread(() -> attempt(lock, setup));
      trial.setDaemon(true);
      trial.start();
      try {
        trial.join(5000);
      } catch (InterruptedException error) {
        return;
      }
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
