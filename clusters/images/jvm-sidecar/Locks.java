package lockbench;

import java.util.List;
import java.util.ServiceLoader;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Finds a lock by the name that the bench calls it, among those of all libraries. */
final class Locks {
  /** A library's name and version, as artifacts are named, and how a client of it is made. */
  record Lock(String library, String version, Client.Maker maker) {}

  private Locks() {}

  static Lock named(String lock) {
    if (lock.equals("nothing")) {
      return new Lock("nothing", "1", setup -> new Nothing());
    }
    for (Library library : ServiceLoader.load(Library.class)) {
      Client.Maker maker = library.locks().get(lock);
      if (maker != null) {
        return new Lock(library.artifact(), version(library.artifact()), maker);
      }
    }
    throw new IllegalArgumentException("no lock is called " + lock);
  }

  /** The locks of all libraries, in order. */
  static List<String> names() {
    return ServiceLoader.load(Library.class).stream()
        .flatMap(library -> library.get().locks().keySet().stream())
        .sorted()
        .toList();
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

  /** From the name of its file on the class path: artifact-version.jar. */
  private static String version(String artifact) {
    String name = artifact.substring(artifact.indexOf(':') + 1);
    Matcher file =
        Pattern.compile("/" + Pattern.quote(name) + "-(\\d[^/]*?)\\.jar")
            .matcher(System.getProperty("java.class.path"));
    return file.find() ? file.group(1) : "unknown";
  }
}
