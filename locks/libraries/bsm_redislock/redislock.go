// bsm/redislock over go-redis, as its documentation shows it.
package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

const redislockPause = 100 * time.Millisecond // between tries, as its README has it

func init() {
	kinds["bsm-redislock"] = kind{"github.com/bsm/redislock", redislockClient}
}

type redislockLock struct {
	sends
	client *redis.Client
	locker *redislock.Client
	holds  map[string]*redislock.Lock
}

func redislockClient(s setup) (client, error) {
	made := &redislockLock{client: redisClient(s.nodes[0], s), holds: map[string]*redislock.Lock{}}
	made.client.AddHook(&made.sends)
	made.locker = redislock.New(made.client)
	return made, nil
}

func (l *redislockLock) acquire(key, hold string, ttlS, waitS float64) answer {
	limit, options := context.Background(), (*redislock.Options)(nil)
	if waitS > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(limit, time.Duration(nanoseconds(waitS)))
		defer cancel()
		options = &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockPause)}
	}
	l.lastNs = 0
	lock, err := l.locker.Obtain(limit, key, time.Duration(nanoseconds(ttlS)), options)
	switch {
	case err == nil:
		l.holds[hold] = lock
		return l.granted(ttlS)
	case errors.Is(err, redislock.ErrNotObtained):
		return denied("held: " + oneLine(err))
	case errors.Is(err, context.DeadlineExceeded) && l.answered:
		return denied("gave-up: " + oneLine(err))
	case l.lastNs == 0 && nothingSent(err): // of all that go-redis tried, not of the last alone
		return denied("no-effect: " + oneLine(err))
	}
	return unknown(err)
}

func (l *redislockLock) release(_, hold string) answer {
	lock := l.holds[hold]
	delete(l.holds, hold)
	switch err := lock.Release(context.Background()); { // nil is not held
	case err == nil:
		return released
	case errors.Is(err, redislock.ErrLockNotHeld):
		return notHeld
	default:
		return unknown(err)
	}
}

func (l *redislockLock) extend(_, hold string, ttlS float64) answer {
	lock := l.holds[hold]
	if lock == nil {
		return notHeld
	}
	switch err := lock.Refresh(context.Background(), time.Duration(nanoseconds(ttlS)), nil); {
	case err == nil:
		return l.granted(ttlS)
	case errors.Is(err, redislock.ErrNotObtained):
		return notHeld
	default:
		return unknown(err)
	}
}

func (l *redislockLock) close() { _ = l.client.Close() }

func (l *redislockLock) granted(ttlS float64) answer {
	return granted(l.lastNs, l.lastNs+nanoseconds(ttlS)/1e6*1e6, nil)
}

// sends notes when the last script was written to a connection, each time that go-redis sends it, and
// whether the server answered it. A client is used by one goroutine, which writes its commands itself.
type sends struct {
	lastNs   int64
	answered bool
}

func (s *sends) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		made, err := next(ctx, network, address)
		if connection, ok := made.(*net.TCPConn); ok {
			return &written{connection, s}, err
		}
		return made, err
	}
}

// written is a connection, as go-redis' looks at idle ones need it, which notes what is sent by it.
type written struct {
	*net.TCPConn
	sends *sends
}

func (w *written) Write(data []byte) (int, error) {
	if bytes.Contains(data, []byte("\r\neval")) || bytes.Contains(data, []byte("\r\nset\r\n")) {
		w.sends.lastNs = monotonicNs()
	}
	return w.TCPConn.Write(data)
}

func (s *sends) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if name := command.Name(); name != "evalsha" && name != "eval" && name != "set" {
			return next(ctx, command)
		}
		s.answered = false
		err := next(ctx, command)
		var said redis.Error
		s.answered = err == nil || errors.As(err, &said)
		return err
	}
}

func (s *sends) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
