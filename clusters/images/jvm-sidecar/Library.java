package lockbench;

import java.util.Map;

/**
 * A library, as its folder declares it: in a public final class with no constructor of its own,
 * which is found because it implements this.
 */
interface Library {
  /** As in requirements.maven: group:artifact. */
  String artifact();

  /** How a client of each of its locks is made, by the name that the bench calls the lock. */
  Map<String, Client.Maker> locks();
}
