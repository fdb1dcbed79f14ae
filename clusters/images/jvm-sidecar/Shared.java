package lockbench;

import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** What clients of this process share, by name: made for the first one, ended after the last. */
final class Shared<T> {
  private final Map<Object, T> made = new HashMap<>();
  private final Map<Object, Integer> clients = new HashMap<>();
  private final Consumer<T> end;

  Shared(Consumer<T> end) {
    this.end = end;
  }

  synchronized T join(Object name, Supplier<T> make) {
    T one = made.get(name);
    if (one == null) {
      one = make.get();
      made.put(name, one);
    }
    clients.merge(name, 1, Integer::sum);
    return one;
  }

  synchronized void leave(Object name) {
    if (clients.merge(name, -1, Integer::sum) == 0) {
      clients.remove(name);
      end.accept(made.remove(name));
    }
  }
}
