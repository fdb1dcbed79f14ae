// The lock of go-zookeeper/zk: a connection with a session as long as the lease, and a Lock per
// acquire.
//
// Lock waits without a limit. So it has a goroutine of its own, and a wait that is over is given up:
// its node is deleted, and what Lock returns later is of no use to anybody.
//
// The promise is the session's (zookeeper_session.go). A session that is over, and a connection that
// is, are told as the loss of everything held.
package main

import (
	"errors"
	"io"
	"log"
	"net/url"
	"time"

	"github.com/go-zookeeper/zk"
)

const zkRoot = "/lockbench/"

func init() {
	kinds["go-zookeeper"] = kind{"github.com/go-zookeeper/zk", zkClient}
}

type zkLock struct {
	setup
	sessions *zkSessions
	conn     *zk.Conn
	holds    map[string]*zk.Lock
}

func zkClient(s setup) (client, error) {
	made := &zkLock{setup: s, sessions: newZkSessions(s), holds: map[string]*zk.Lock{}}
	var err error
	made.conn, _, err = zk.Connect(
		s.nodes, time.Duration(nanoseconds(s.ttlS)),
		zk.WithDialer(made.sessions.dial),
		zk.WithEventCallback(made.changed),
		zk.WithLogger(log.New(io.Discard, "", 0)),
	)
	return made, err
}

func (l *zkLock) changed(event zk.Event) {
	over := event.State == zk.StateDisconnected || event.State == zk.StateExpired
	if event.Type == zk.EventSession && over {
		l.sessions.lose()
	}
}

func (l *zkLock) acquire(key, hold string, _, waitS float64) answer {
	lock := zk.NewLock(l.conn, zkRoot+url.PathEscape(key), zk.WorldACL(zk.PermAll))
	place := l.sessions.queue(hold)
	returned := make(chan error, 1)
	go func() { returned <- lock.LockWithData([]byte(hold)) }()
	// One try: until it is known that others are before it.
	over, others, reason := time.After(time.Duration(nanoseconds(waitS))), (chan struct{})(nil), "gave-up"
	if waitS <= 0 {
		over, others, reason = time.After(l.limit()), place.waits, "held"
	}
	select {
	case err := <-returned:
		return l.said(err, lock, hold, place)
	case <-others:
	case <-over:
	}
	go func() {
		if <-returned == nil {
			_ = lock.Unlock()
		}
	}()
	return l.leave(place, reason)
}

func (l *zkLock) said(err error, lock *zk.Lock, hold string, place *zkPlace) answer {
	switch {
	case err == nil:
		l.holds[hold] = lock
		return l.sessions.granted(hold)
	case errors.Is(err, zk.ErrSessionExpired):
		return denied("gave-up: " + oneLine(err))
	case errors.Is(err, zk.ErrNoServer) && !l.sessions.asked(place):
		return denied("no-effect: " + oneLine(err))
	}
	return unknown(err)
}

// leave deletes the node of a Lock that has not returned.
func (l *zkLock) leave(place *zkPlace, reason string) answer {
	path := l.sessions.path(place)
	if path == "" {
		return unknown(errors.New("Lock() has not returned, and the name of its node is not known"))
	}
	deleted := make(chan error, 1)
	go func() { deleted <- l.conn.Delete(path, -1) }()
	select {
	case err := <-deleted:
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return unknown(err)
		}
		return denied(reason + ": Lock() has not returned, and its node is deleted")
	case <-time.After(l.limit()):
		return unknown(errors.New("Lock() has not returned, and nor has the delete of its node"))
	}
}

func (l *zkLock) limit() time.Duration { return time.Duration(nanoseconds(l.timeoutS)) }

func (l *zkLock) release(_, hold string) answer {
	lock := l.holds[hold]
	if lock == nil {
		return notHeld
	}
	delete(l.holds, hold)
	l.sessions.forget(hold)
	switch err := lock.Unlock(); {
	case err == nil:
		return released
	case errors.Is(err, zk.ErrNoNode):
		return notHeld
	default:
		return unknown(err)
	}
}

func (l *zkLock) extend(_, _ string, _ float64) answer {
	return unknown(errors.New("the library has no extend: its session does it"))
}

func (l *zkLock) close() { l.conn.Close() }
