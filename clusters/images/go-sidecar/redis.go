// What the libraries over go-redis share.
//
// As they come: go-redis' own limits and its three retries of every command. Safe: the client
// timeout on every request, no retries, and contexts that count for commands too (go-redis ignores
// a context's deadline while a command is under way unless ContextTimeoutEnabled is set).
package main

import (
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
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
