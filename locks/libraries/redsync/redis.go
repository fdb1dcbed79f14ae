// redsync and bsm/redislock over go-redis, as their documentation shows them.
// What their promises are counted from is in locks/libraries/redsync/lock.py and locks/libraries/bsm_redislock/lock.py.
//
// As they come: go-redis' own limits and its three retries of every command. Safe: the client
// timeout on every request, no retries, and contexts that count for commands too (go-redis ignores
// a context's deadline while a command is under way unless ContextTimeoutEnabled is set).
package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	redsyncDriftFactor = 0.01                   // of the expiry; redsync's default
	redislockPause     = 100 * time.Millisecond // between tries, as its README has it
)

func redisClient(node string, s setup) *redis.Client {
	options := &redis.Options{Addr: node}
	if s.safe {
		limit := time.Duration(nanoseconds(s.timeoutS))
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = limit, limit, limit
		options.MaxRetries = -1
		options.ContextTimeoutEnabled = true
	}
	return redis.NewClient(options)
}

// --- redsync -------------------------------------------------------------------------------------

type redsyncLock struct {
	clients []*redis.Client
	redsync *redsync.Redsync
	holds   map[string]*redsync.Mutex
}

func redsyncClient(s setup) (client, error) {
	made := &redsyncLock{holds: map[string]*redsync.Mutex{}}
	pools := make([]redsyncredis.Pool, len(s.nodes))
	for i, node := range s.nodes {
		made.clients = append(made.clients, redisClient(node, s))
		pools[i] = goredis.NewPool(made.clients[i])
	}
	made.redsync = redsync.New(pools...)
	return made, nil
}

func (l *redsyncLock) acquire(key, hold string, ttlS, waitS float64) answer {
	mutex := l.redsync.NewMutex(key, redsync.WithExpiry(time.Duration(nanoseconds(ttlS))))
	var err error
	if waitS > 0 {
		limit, cancel := context.WithTimeout(context.Background(), time.Duration(nanoseconds(waitS)))
		defer cancel()
		err = mutex.LockContext(limit)
	} else {
		err = mutex.TryLock()
	}
	switch {
	case err == nil:
		l.holds[hold] = mutex
		return promised(mutex, ttlS)
	case errors.Is(err, redsync.ErrFailed):
		return denied("gave-up: " + oneLine(err))
	case nothingSent(err):
		return denied("no-effect: " + oneLine(err))
	case onlyTaken(err) && waitS > 0:
		return denied("gave-up: " + oneLine(err))
	case onlyTaken(err):
		return denied("held: " + oneLine(err))
	}
	return unknown(err)
}

// promised takes the library's own word: Until is counted from before its commands were sent.
func promised(mutex *redsync.Mutex, ttlS float64) answer {
	nowNs := monotonicNs()
	untilNs := nowNs + time.Until(mutex.Until()).Nanoseconds()
	return granted(untilNs-nanoseconds(ttlS*(1-redsyncDriftFactor)), untilNs, nil)
}

func (l *redsyncLock) release(_, hold string) answer {
	mutex := l.holds[hold]
	if mutex == nil {
		return notHeld
	}
	delete(l.holds, hold)
	ok, err := mutex.Unlock()
	switch {
	case ok:
		return released
	case err == nil || onlyTaken(err):
		return notHeld
	}
	return unknown(err)
}

func (l *redsyncLock) extend(_, hold string, ttlS float64) answer {
	mutex := l.holds[hold]
	if mutex == nil {
		return notHeld
	}
	ok, err := mutex.Extend()
	switch {
	case ok:
		return promised(mutex, ttlS)
	case err == nil || onlyTaken(err):
		return notHeld
	}
	return unknown(err)
}

func (l *redsyncLock) close() {
	for _, each := range l.clients {
		_ = each.Close()
	}
}

// onlyTaken: every node that did not agree has answered, that it is not this mutex's.
func onlyTaken(err error) bool {
	return every(err, func(one error) bool {
		var quorum *redsync.ErrTaken
		var node *redsync.ErrNodeTaken
		return errors.As(one, &quorum) || errors.As(one, &node) ||
			errors.Is(one, redsync.ErrLockAlreadyExpired)
	})
}

// nothingSent: no node could be connected to.
func nothingSent(err error) bool {
	return every(err, func(one error) bool {
		var network *net.OpError
		return errors.As(one, &network) && network.Op == "dial"
	})
}

func every(err error, is func(error) bool) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			if !every(one, is) {
				return false
			}
		}
		return true
	}
	return is(err)
}

// --- bsm/redislock -------------------------------------------------------------------------------

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
	lock, err := l.locker.Obtain(limit, key, time.Duration(nanoseconds(ttlS)), options)
	switch {
	case err == nil:
		l.holds[hold] = lock
		return l.granted(ttlS)
	case errors.Is(err, redislock.ErrNotObtained):
		return denied("held: " + oneLine(err))
	case errors.Is(err, context.DeadlineExceeded) && l.answered:
		return denied("gave-up: " + oneLine(err))
	case nothingSent(err):
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
	if bytes.Contains(data, []byte("\r\neval")) {
		w.sends.lastNs = monotonicNs()
	}
	return w.TCPConn.Write(data)
}

func (s *sends) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if name := command.Name(); name != "evalsha" && name != "eval" {
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
