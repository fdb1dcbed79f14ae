package org.apache.zookeeper;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import org.apache.zookeeper.client.ZKClientConfig;

/**
 * ZooKeeper's own client connection, which also tells when each answered message had been sent: the
 * opening of a session, requests of any kind and pings. It sends and reads nothing itself.
 *
 * <p>It stands in ZooKeeper's package because what it extends is private to that; the version is
 * pinned (3.9.3: ClientCnxnSocketNIO.doIO writes at most one message, of which only requests wait in
 * the pending queue, then ClientCnxn.SendThread.readResponse wakes whoever waits for an answer).
 * Answers to requests come in the order of the requests, and so do answers to pings; the two may
 * overtake each other.
 *
 * <p>Guarantees that an answer was told before whoever asks the listener in a block that is
 * synchronized on it can have got that answer, and that the time told is not later than the sending.
 * Does not tell of an answer that the session has expired or moved.
 */
public final class ListeningSocket extends ClientCnxnSocketNIO {
  private static final int PING_XID = -2;
  private static final int ERR_AT = 12; // of a reply's header, after its xid and zxid
  private static final int TIMEOUT_AT = 4; // of the answer to an opening, after its version
  private static final int GET_CHILDREN = ZooDefs.OpCode.getChildren;
  private static final int GET_CHILDREN_2 = ZooDefs.OpCode.getChildren2;

  private final Listener listener;
  private final Map<Integer, Sent> requests = new HashMap<>(); // by xid, not yet answered
  private final Deque<Long> pings = new ArrayDeque<>(); // not yet answered
  private int newestXid;
  private long openedNs; // when the opening was sent

  /** Is told by the threads of connections, which hold its monitor; must not block. */
  public interface Listener {
    /** The server accepted a session, new or old, for this long; it was asked to at that time. */
    void accepted(long session, long sentNs, long timeoutMs);

    /** The server answered what this session sent then; listed: with the children of a node. */
    void answered(long session, long sentNs, boolean listed);
  }

  private record Sent(long atNs, boolean lists) {}

  private static final class Telling extends ZKClientConfig {
    private final Listener listener;

    Telling(Listener listener) {
      this.listener = listener;
    }
  }

  /** The configuration of a client whose connections tell this listener. */
  public static ZKClientConfig telling(Listener listener) {
    ZKClientConfig made = new Telling(listener);
    made.setProperty(ZKClientConfig.ZOOKEEPER_CLIENT_CNXN_SOCKET, ListeningSocket.class.getName());
    return made;
  }

  ListeningSocket(ZKClientConfig config) throws IOException {
    super(config);
    listener = ((Telling) config).listener;
  }

  @Override
  void connect(java.net.InetSocketAddress address) throws IOException {
    requests.clear(); // of the last connection; they will not be answered
    pings.clear();
    super.connect(address);
  }

  @Override
  void doIO(Queue<ClientCnxn.Packet> pending, ClientCnxn connection)
      throws InterruptedException, IOException {
    synchronized (listener) {
      long nowNs = System.nanoTime();
      long sent = getSentCount();
      ByteBuffer message = incomingBuffer;
      boolean answer = initialized && message != lenBuffer;
      super.doIO(pending, connection);
      if (answer && incomingBuffer == lenBuffer) {
        answered(message);
      }
      if (getSentCount() > sent) {
        written(pending, nowNs);
      }
    }
  }

  @Override
  void readConnectResult() throws IOException {
    long timeoutMs = incomingBuffer.getInt(TIMEOUT_AT);
    super.readConnectResult(); // throws where the session is over
    listener.accepted(sessionId, openedNs, timeoutMs);
  }

  private void written(Queue<ClientCnxn.Packet> pending, long nowNs) {
    ClientCnxn.Packet newest;
    synchronized (pending) {
      newest = ((Deque<ClientCnxn.Packet>) pending).peekLast();
    }
    if (newest != null && newest.requestHeader.getXid() != newestXid) {
      newestXid = newest.requestHeader.getXid();
      int type = newest.requestHeader.getType();
      requests.put(newestXid, new Sent(nowNs, type == GET_CHILDREN || type == GET_CHILDREN_2));
    } else if (initialized) {
      pings.add(nowNs);
    } else {
      openedNs = nowNs;
    }
  }

  private void answered(ByteBuffer message) {
    int xid = message.getInt(0);
    Sent asked = requests.remove(xid);
    if (xid == PING_XID && !pings.isEmpty()) {
      listener.answered(sessionId, pings.remove(), false);
    } else if (asked != null && alive(message.getInt(ERR_AT))) {
      listener.answered(sessionId, asked.atNs, asked.lists);
    }
  }

  private static boolean alive(int err) {
    return err != KeeperException.Code.SESSIONEXPIRED.intValue()
        && err != KeeperException.Code.SESSIONMOVED.intValue();
  }
}
