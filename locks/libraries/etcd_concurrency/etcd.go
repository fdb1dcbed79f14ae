// The mutex of etcd's own clientv3/concurrency, as its documentation shows it: a client with a
// session, and a Mutex per acquire.
//
// The promise is the session's lease: from when the last acknowledged keep-alive, or its grant, was
// sent, for as long as the server said. The package does not tell these times, so its requests are
// listened to.
// A session that has ended is told as the loss of everything held under it.
package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
)

const etcdModule = "go.etcd.io/etcd/client/v3"

func init() {
	kinds["etcd-concurrency"] = kind{etcdModule, etcdClient(plain)}
	kinds["etcd-concurrency-is-owner"] = kind{etcdModule, etcdClient(isOwner)}
	kinds["etcd-concurrency-shared-session"] = kind{etcdModule, etcdClient(sharedSession)}
}

type etcdVariant int

const (
	plain         etcdVariant = iota
	isOwner                   // a grant and a release count only in a transaction that compares IsOwner
	sharedSession             // all clients of this process share one session, and so re-enter
)

type etcdLock struct {
	setup
	variant etcdVariant
	sessions
	holds map[string]*concurrency.Mutex
}

func etcdClient(variant etcdVariant) func(setup) (client, error) {
	return func(s setup) (client, error) {
		made := &etcdLock{setup: s, variant: variant, holds: map[string]*concurrency.Mutex{}}
		if variant == sharedSession {
			made.sessions = theShared
		} else {
			made.sessions = &ownSessions{}
		}
		return made, made.sessions.connect(s)
	}
}

func (l *etcdLock) limit() (context.Context, context.CancelFunc) { return within(l.timeoutS) }

func within(seconds float64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(nanoseconds(seconds)))
}

func (l *etcdLock) acquire(key, hold string, _, waitS float64) answer {
	session, err := l.session(l.setup, max(l.timeoutS, waitS))
	if err != nil {
		return denied("no-effect: there is no session: " + oneLine(err))
	}
	mutex := concurrency.NewMutex(session.Session, "/lockbench/"+key)
	if waitS > 0 {
		limit, cancel := within(waitS)
		defer cancel()
		err = mutex.Lock(limit)
	} else {
		limit, cancel := l.limit()
		defer cancel()
		err = mutex.TryLock(limit)
	}
	if err == nil && l.variant == isOwner {
		err = l.confirm(mutex, clientv3.OpGet(mutex.Key()))
	}
	if err == nil {
		l.holds[hold] = mutex
		sentNs, untilNs := session.hold(hold, l.tell)
		fence := createRevision(mutex)
		return granted(sentNs, untilNs, &fence)
	}
	switch {
	case errors.Is(err, concurrency.ErrLocked):
		return denied("held: " + oneLine(err))
	case errors.Is(err, concurrency.ErrSessionExpired), errors.Is(err, errNotOwner):
		return denied("no-effect: " + oneLine(err))
	case mutex.Key() == "\x00": // it says so itself: its entry is gone
		return denied("gave-up: " + oneLine(err))
	}
	return unknown(err)
}

var errNotOwner = errors.New("IsOwner does not hold in the transaction")

// confirm is what IsOwner is for: nothing of the lock's user happens but in such a transaction.
// It must have an operation. One of comparisons alone is answered by whichever server is asked from
// what that server has heard so far (docs/track/etcd-compare-only.md).
func (l *etcdLock) confirm(mutex *concurrency.Mutex, then clientv3.Op) error {
	limit, cancel := l.limit()
	defer cancel()
	done, err := l.etcd().Txn(limit).If(mutex.IsOwner()).Then(then).Commit()
	if err == nil && !done.Succeeded {
		return errNotOwner
	}
	return err
}

// createRevision orders the waiters, and is what IsOwner compares.
func createRevision(mutex *concurrency.Mutex) int64 {
	compared := pb.Compare(mutex.IsOwner())
	return compared.GetCreateRevision()
}

func (l *etcdLock) release(_, hold string) answer {
	mutex := l.holds[hold]
	if mutex == nil {
		return notHeld
	}
	delete(l.holds, hold)
	l.forget(hold)
	var err error
	if l.variant == isOwner {
		err = l.confirm(mutex, clientv3.OpDelete(mutex.Key()))
	} else {
		limit, cancel := l.limit()
		defer cancel()
		err = mutex.Unlock(limit)
	}
	switch {
	case err == nil:
		return released
	case errors.Is(err, concurrency.ErrLockReleased), errors.Is(err, errNotOwner):
		return notHeld
	}
	return unknown(err)
}

func (l *etcdLock) extend(_, _ string, _ float64) answer {
	return unknown(errors.New("the library has no extend: its session does it"))
}

func (l *etcdLock) close() { l.sessions.close() }

// --- sessions ------------------------------------------------------------------------------------

// sessions gives a client its session, a new one when the last has ended.
type sessions interface {
	connect(setup) error
	session(s setup, limitS float64) (*heldSession, error)
	etcd() *clientv3.Client
	forget(hold string)
	close()
}

type ownSessions struct {
	client  *clientv3.Client
	beats   *keepAlives
	current *heldSession
}

func (o *ownSessions) connect(s setup) error {
	o.beats = &keepAlives{listeners: map[int64]*heldSession{}}
	made, err := clientv3.New(clientv3.Config{
		Endpoints:   s.nodes,
		DialTimeout: time.Duration(nanoseconds(s.timeoutS)),
		DialOptions: []grpc.DialOption{
			grpc.WithChainStreamInterceptor(o.beats.intercept),
			grpc.WithChainUnaryInterceptor(o.beats.interceptGrant),
		},
	})
	o.client = made
	return err
}

func (o *ownSessions) etcd() *clientv3.Client { return o.client }

func (o *ownSessions) session(s setup, limitS float64) (*heldSession, error) {
	if o.current != nil {
		select {
		case <-o.current.Done():
		default:
			return o.current, nil
		}
	}
	limit, cancel := within(limitS)
	defer cancel()
	lease, err := o.client.Grant(limit, int64(math.Ceil(s.ttlS)))
	if err != nil {
		return nil, err
	}
	sentNs := o.beats.grantSentNs
	held := &heldSession{
		sentNs: sentNs, untilNs: sentNs + nanoseconds(float64(lease.TTL)), holds: map[string]tell{},
	}
	o.beats.listen(int64(lease.ID), held)
	held.Session, err = concurrency.NewSession(o.client, concurrency.WithLease(lease.ID))
	if err != nil {
		return nil, err
	}
	go held.watch()
	o.current = held
	return held, nil
}

func (o *ownSessions) forget(hold string) {
	if o.current != nil {
		o.current.forget(hold)
	}
}

func (o *ownSessions) close() { _ = o.client.Close() }

// sharedSessions: one for all clients of this process, until the last one is closed.
type sharedSessions struct {
	mutex   sync.Mutex
	clients int
	own     ownSessions
}

var theShared = &sharedSessions{}

func (s *sharedSessions) connect(with setup) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.own.client == nil {
		if err := s.own.connect(with); err != nil {
			return err
		}
	}
	s.clients++
	return nil
}

func (s *sharedSessions) session(with setup, limitS float64) (*heldSession, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.own.session(with, limitS)
}

func (s *sharedSessions) etcd() *clientv3.Client { return s.own.client }

func (s *sharedSessions) forget(hold string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.own.forget(hold)
}

func (s *sharedSessions) close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.clients--; s.clients == 0 {
		s.own.close()
		s.own = ownSessions{}
	}
}

// heldSession knows what is held under it and until when it is promised.
type heldSession struct {
	*concurrency.Session
	mutex           sync.Mutex
	sentNs, untilNs int64
	ended           bool
	holds           map[string]tell
}

// hold returns the promise so far; whatever lengthens or ends it from now on is told. Not before:
// while it waits nothing is held that could be.
func (h *heldSession) hold(hold string, whom tell) (sentNs, untilNs int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.holds[hold] = whom
	if h.ended {
		whom.lost(hold)
	}
	return h.sentNs, h.untilNs
}

func (h *heldSession) forget(hold string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	delete(h.holds, hold)
}

func (h *heldSession) acknowledged(sentNs, ttlS int64) {
	nowNs := monotonicNs()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.sentNs, h.untilNs = sentNs, sentNs+ttlS*1e9
	for hold, whom := range h.holds {
		whom.extended(hold, sentNs, nowNs, h.untilNs)
	}
}

// watch tells the loss when the library does.
func (h *heldSession) watch() {
	<-h.Done()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.ended = true
	for hold, whom := range h.holds {
		whom.lost(hold)
	}
	clear(h.holds)
}

// --- keep-alives ---------------------------------------------------------------------------------

// keepAlives listens to the streams of one client, and knows whose lease is whose session's.
type keepAlives struct {
	mutex       sync.Mutex
	listeners   map[int64]*heldSession
	grantSentNs int64 // of the last lease that was asked for; one at a time
}

// interceptGrant is called each time that the client sends a request, again included.
func (k *keepAlives) interceptGrant(
	ctx context.Context, method string, request, reply any, connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if _, ok := request.(*pb.LeaseGrantRequest); ok {
		k.grantSentNs = monotonicNs()
	}
	return invoke(ctx, method, request, reply, connection, options...)
}

func (k *keepAlives) listen(lease int64, held *heldSession) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.listeners = map[int64]*heldSession{lease: held} // the last one has ended
}

func (k *keepAlives) of(lease int64) *heldSession {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.listeners[lease]
}

func (k *keepAlives) intercept(
	ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string,
	streamer grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	made, err := streamer(ctx, description, connection, method, options...)
	if err != nil || method != "/etcdserverpb.Lease/LeaseKeepAlive" {
		return made, err
	}
	return &beating{ClientStream: made, of: k, sent: map[int64][]int64{}}, nil
}

// beating is one stream. The server answers in order, so the n-th answer for a lease belongs to the
// n-th request for it.
type beating struct {
	grpc.ClientStream
	of    *keepAlives
	mutex sync.Mutex
	sent  map[int64][]int64 // lease → when what is not yet answered was sent
}

func (b *beating) SendMsg(message any) error {
	if asked, ok := message.(*pb.LeaseKeepAliveRequest); ok {
		b.mutex.Lock()
		b.sent[asked.ID] = append(b.sent[asked.ID], monotonicNs())
		b.mutex.Unlock()
	}
	return b.ClientStream.SendMsg(message)
}

func (b *beating) RecvMsg(message any) error {
	err := b.ClientStream.RecvMsg(message)
	said, ok := message.(*pb.LeaseKeepAliveResponse)
	if err != nil || !ok {
		return err
	}
	b.mutex.Lock()
	waiting := b.sent[said.ID]
	if len(waiting) > 0 {
		b.sent[said.ID] = waiting[1:]
	}
	b.mutex.Unlock()
	if held := b.of.of(said.ID); held != nil && len(waiting) > 0 && said.TTL > 0 {
		held.acknowledged(waiting[0], said.TTL)
	}
	return err
}
