// client-go's leader election over a Lease, as its documentation shows it: a LeaderElector for each
// key that a client asks for, which Run leads once for each hold. It is kept, as it is in a process
// that stands for election again: what it has observed of the record decides when a dead leader's
// lease has ended.
//
// Leading is what OnStartedLeading says; it ends when OnStoppedLeading is called. Run waits without a
// limit, so a wait that is over, and one try, end its context. The package does not tell when it sent
// what: the resource lock that it uses is listened to.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

const (
	leaseNamespace = "default"
	leaseToken     = "lockbench" // clusters/kubernetes/servers.py gives it
	// After a record that says who leads, an elector that thinks it over writes at once, if at all.
	leaseThinks = 5 * time.Millisecond
)

func init() {
	kinds["client-go-lease"] = kind{"k8s.io/client-go", leaseClient}
	// A logger without a sink; klog's own copies errors to stderr whatever it is told.
	klog.SetLoggerWithOptions(klog.Logger{}, klog.ContextualLogger(true))
}

type leaseLock struct {
	setup
	identity  string
	leases    coordination.LeasesGetter
	elections map[string]*election
	holds     map[string]*term
}

func leaseClient(s setup) (client, error) {
	dialer := &net.Dialer{}
	renewS := renewDeadlineS(s.ttlS)
	config := &rest.Config{
		Host:            "https://" + s.nodes[0],
		BearerToken:     leaseToken,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		// As resourcelock.NewFromKubeconfig sets it.
		Timeout: time.Duration(nanoseconds(max(renewS/2, 1))),
		QPS:     -1, // controller-runtime's default
		// With a dialer of its own a client has connections of its own.
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	}
	leases, err := coordination.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &leaseLock{
		setup: s, identity: fmt.Sprintf("client-%d-%d", s.tell.client, monotonicNs()), leases: leases,
		elections: map[string]*election{}, holds: map[string]*term{},
	}, nil
}

// The relations of the defaults of Kubernetes' own components: 15 s, 10 s and 2 s.
func renewDeadlineS(leaseS float64) float64 { return leaseS * 10 / 15 }
func retryPeriodS(leaseS float64) float64   { return leaseS * 2 / 15 }

// election is one key of one client.
type election struct {
	*resourcelock.LeaseLock
	elector *leaderelection.LeaderElector
	leaseNs int64      // as the record has it, in whole seconds
	sending sync.Mutex // held while a write is on its way
	mutex   sync.Mutex
	now     *term
}

// termOf is where the context of a Run has its term. OnStartedLeading is called in a goroutine that
// may begin after Run has returned.
type termOf struct{}

// term is one go at leading.
type term struct {
	hold     string
	election *election
	tell     tell
	cancel   context.CancelFunc
	started  chan struct{} // closed by OnStartedLeading
	ended    chan struct{} // closed when Run has returned
	read     chan error    // of each Get: who leads, or its error

	// Guarded by the election's mutex.
	writes   int
	failed   error // of a write that may have taken effect, else of the last one
	sentNs   int64 // of the last write that was acknowledged with this client as the holder
	granted  bool
	leaving  bool
	stopped  bool  // whether OnStoppedLeading was called
	freed    error // of the write that gives the lease back; errNotAsked before it
	lastRead error
}

var (
	errNotAsked = errors.New("the lease was not given back")
	errLed      = errors.New("led by another")
)

func (l *leaseLock) election(key string, ttlS float64) (*election, error) {
	if e := l.elections[key]; e != nil {
		return e, nil
	}
	e := &election{
		LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: leaseName(key), Namespace: leaseNamespace},
			Client:     l.leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
		},
		leaseNs: int64(ttlS) * 1e9,
	}
	var err error
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          e,
		LeaseDuration: time.Duration(nanoseconds(ttlS)),
		RenewDeadline: time.Duration(nanoseconds(renewDeadlineS(ttlS))),
		// Of the client's lease: whoever asks for a longer one looks no less often.
		RetryPeriod:     time.Duration(nanoseconds(retryPeriodS(l.ttlS))),
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { close(ctx.Value(termOf{}).(*term).started) },
			OnStoppedLeading: e.stopped,
		},
	})
	if err == nil {
		l.elections[key] = e
	}
	return e, err
}

// leaseName is a key as Kubernetes allows names, different for different keys.
func leaseName(key string) string {
	var name strings.Builder
	name.WriteByte('k')
	for _, letter := range []byte(key) {
		if letter >= 'a' && letter <= 'z' || letter >= '0' && letter <= '9' {
			name.WriteByte(letter)
		} else {
			name.WriteString("-" + hex.EncodeToString([]byte{letter}))
		}
	}
	return name.String()
}

func (l *leaseLock) acquire(key, hold string, ttlS, waitS float64) answer {
	e, err := l.election(key, ttlS)
	if err != nil {
		return unknown(err)
	}
	t := &term{
		hold: hold, election: e, tell: l.tell, freed: errNotAsked,
		started: make(chan struct{}), ended: make(chan struct{}), read: make(chan error, 16),
	}
	var ctx context.Context
	ctx, t.cancel = context.WithCancel(context.WithValue(context.Background(), termOf{}, t))
	e.begin(t)
	go func() {
		e.elector.Run(ctx)
		close(t.ended)
	}()
	if t.leads(time.Duration(nanoseconds(waitS)), time.Duration(nanoseconds(l.timeoutS))) {
		l.holds[hold] = t
		return e.grant(t)
	}
	t.cancel()
	<-t.ended
	return e.refusal(t, waitS > 0)
}

// leads waits until this client leads, for so long, or (zero) until one try is over.
func (t *term) leads(wait, limit time.Duration) bool {
	over, read := time.After(wait), (chan error)(nil)
	if wait <= 0 {
		over, read = time.After(limit), t.read
	}
	for {
		select {
		case <-t.started:
			return true
		case <-over:
			return false
		case err := <-read:
			if err == nil {
				continue // it will be written
			}
			if errors.Is(err, errLed) {
				over = time.After(leaseThinks)
				if t.election.writing(leaseThinks, t) {
					over = time.After(limit)
				}
				continue
			}
			return false
		}
	}
}

func (l *leaseLock) release(_, hold string) answer {
	t := l.holds[hold]
	if t == nil {
		return notHeld
	}
	delete(l.holds, hold)
	wasLost := t.election.leave(t)
	// Not while a renewal is on its way. Run would cut it and look at the Lease at once, and when the
	// renewal is served after that look, the lease is not given back
	// (https://github.com/kubernetes/kubernetes/issues/131867). The first renewal goes out with
	// OnStartedLeading, so holds that are short would often meet it.
	t.election.sending.Lock()
	t.cancel()
	t.election.sending.Unlock()
	<-t.ended
	return t.election.released(t, wasLost)
}

func (l *leaseLock) extend(_, _ string, _ float64) answer {
	return unknown(errors.New("the library has no extend: its elector does it"))
}

func (l *leaseLock) close() {
	for _, t := range l.holds {
		t.election.leave(t)
		t.cancel()
	}
}

// --- one election -------------------------------------------------------------------------------

func (e *election) begin(t *term) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.now = t
}

// leave tells whether Run had stopped leading by itself before.
func (e *election) leave(t *term) bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	t.leaving = true
	return t.stopped
}

// stopped is OnStoppedLeading, which is called without having led, too.
func (e *election) stopped() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.now.stopped = true
	if e.now.granted && !e.now.leaving {
		e.now.tell.lost(e.now.hold)
	}
}

// writing tells whether an elector has begun to write within so long.
func (e *election) writing(limit time.Duration, t *term) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		e.mutex.Lock()
		began := t.writes > 0
		e.mutex.Unlock()
		if began {
			return true
		}
	}
	return false
}

func (e *election) grant(t *term) answer {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	t.granted = true
	if t.stopped {
		t.tell.lost(t.hold)
	}
	return granted(t.sentNs, t.sentNs+e.leaseNs, nil)
}

// refusal says what a term came to that was given up.
func (e *election) refusal(t *term, waited bool) answer {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	reason := "held"
	switch {
	case t.sentNs > 0 && t.freed != nil:
		return unknown(fmt.Errorf("given up while it led: %w", t.freed))
	case t.sentNs > 0:
		reason = "gave-up: given back at once"
	case t.failed != nil && !refused(t.failed):
		return unknown(t.failed)
	case t.lastRead != nil:
		reason = "no-effect: " + oneLine(t.lastRead)
	}
	if waited && !strings.HasPrefix(reason, "gave-up") {
		reason = "gave-up: " + reason
	}
	return denied(reason)
}

// released says what Run came to after its context had ended. What it gave back when it had lost the
// lease is no answer to a release that comes later.
func (e *election) released(t *term, wasLost bool) answer {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	switch {
	case t.freed == nil && wasLost:
		return notHeld
	case t.freed == nil:
		return released
	case apierrors.IsNotFound(t.freed):
		return notHeld
	// Refused for its version as well: another client's write came between, or a renewal of this one
	// that had no answer, and then it has the lease until it ends.
	case !errors.Is(t.freed, errNotAsked):
		return unknown(t.freed)
	case t.lastRead != nil && !apierrors.IsNotFound(t.lastRead):
		return unknown(t.lastRead)
	}
	return notHeld // Run knew that another leads
}

// refused: the server did not write it, or was not reached. A write is sent once: client-go sends one
// again only when a server has answered it with Retry-After.
func refused(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		errors.Is(err, syscall.ECONNREFUSED)
}

// --- what the elector asks -----------------------------------------------------------------------

func (e *election) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := e.LeaseLock.Get(ctx)
	e.mutex.Lock()
	defer e.mutex.Unlock()
	t, said := e.now, err
	t.lastRead = err
	switch {
	case apierrors.IsNotFound(err):
		said, t.lastRead = nil, nil
	case err == nil && record.HolderIdentity != "" && record.HolderIdentity != e.Identity():
		said = errLed
	}
	select {
	case t.read <- said:
	default: // nobody waits for it
	}
	return record, raw, err
}

func (e *election) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return e.write(record, func() error { return e.LeaseLock.Create(ctx, record) })
}

func (e *election) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return e.write(record, func() error { return e.LeaseLock.Update(ctx, record) })
}

func (e *election) write(record resourcelock.LeaderElectionRecord, send func() error) error {
	e.sending.Lock()
	defer e.sending.Unlock()
	e.mutex.Lock()
	t := e.now
	t.writes++
	e.mutex.Unlock()
	sentNs := monotonicNs()
	err := send()
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if record.HolderIdentity == "" {
		t.freed = err
		return err
	}
	if t.failed == nil || refused(t.failed) {
		t.failed = err
	}
	if err != nil {
		select {
		case t.read <- err:
		default:
		}
		return err
	}
	t.sentNs = sentNs
	if t.granted && !t.leaving {
		t.tell.extended(t.hold, sentNs, monotonicNs(), sentNs+e.leaseNs)
	}
	return nil
}
