// redsync over go-redis, as its documentation shows it.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const redsyncDriftFactor = 0.01 // of the expiry; redsync's default

func init() {
	kinds["redsync"] = kind{"github.com/go-redsync/redsync/v4", redsyncClient}
}

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
