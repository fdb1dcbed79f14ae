// What the sessions of a client of ZooKeeper are promised, one after the other.
//
// A promise runs from when the last message that counts was sent, of any kind, for as long as was
// negotiated. What opens a session counts once it is answered. Another message counts once a later
// one, sent at least a tick after its answer, is answered too: before that its server may die and not
// have told the leader, which ends sessions (locks/libraries/shared/zookeeper_touches.py says why).
//
// The library tells none of these times. So its connections are listened to, which send and read
// nothing themselves. The library writes each message at once (conn.go, authenticate, sendData and
// sendLoop, v1.0.4), and reads an answer whole before it acts on it. Answers to requests are found by
// their number, answers to pings come in their order.
package main

import (
	"encoding/binary"
	"net"
	"path"
	"sync"
	"time"
)

// The servers' tickTime, of which no client is told: as clusters/zookeeper/ensemble.py sets it.
const (
	ticksPerLease = 15
	tickMsMin     = 100
)

// The words of the protocol, and where they are in a message behind its length.
const (
	zkPing           = -2 // the number of every ping
	zkCreate         = 1
	zkGetData        = 4
	zkGetChildren2   = 12
	zkSessionExpired = -112
	zkSessionMoved   = -118

	zkOpAt      = 4 // of a request, after its number
	zkPathAt    = 8
	zkErrAt     = 12 // of an answer, after its number and its transaction's
	zkCreatedAt = 16
	zkTimeoutAt = 4 // of the answer to an opening, after its version
	zkSessionAt = 8
)

// zkSession is one session. What it is answered lengthens no hold of an earlier one.
type zkSession struct {
	id        uint64
	sentNs    int64 // of the newest message that counts
	timeoutNs int64
	noted     []zkAnswered // what does not count yet
}

type zkAnswered struct{ sentNs, readNs int64 }

// zkPlace is what is known of the node of one Lock.
type zkPlace struct {
	hold  string        // the data of the node
	asked bool          // whether a create was ever sent
	path  string        // once the server has told it
	waits chan struct{} // closed when there is a node before it, which Lock waits for
}

// zkSessions are those of one client.
type zkSessions struct {
	mutex   sync.Mutex
	tell    tell
	tickNs  int64
	current *zkSession
	listed  *zkSession // the one that answered the last list of children, by which Lock decides
	place   *zkPlace   // of the newest Lock
	holds   map[string]*zkSession
}

func newZkSessions(s setup) *zkSessions {
	none := &zkSession{}
	return &zkSessions{
		tell: s.tell, tickNs: max(nanoseconds(s.ttlS)/ticksPerLease, tickMsMin*1e6),
		current: none, listed: none, place: &zkPlace{}, holds: map[string]*zkSession{},
	}
}

// queue is asked before the Lock of a hold begins.
func (s *zkSessions) queue(hold string) *zkPlace {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.place = &zkPlace{hold: hold, waits: make(chan struct{})}
	return s.place
}

func (s *zkSessions) asked(place *zkPlace) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return place.asked
}

func (s *zkSessions) path(place *zkPlace) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return place.path
}

func (s *zkSessions) granted(hold string) answer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.holds[hold] = s.listed
	return granted(s.listed.sentNs, s.listed.sentNs+s.listed.timeoutNs, nil)
}

func (s *zkSessions) forget(hold string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.holds, hold)
}

func (s *zkSessions) lose() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for hold := range s.holds {
		s.tell.lost(hold)
	}
	clear(s.holds)
}

// lengthen tells what the current session is promised now.
func (s *zkSessions) lengthen(nowNs int64) {
	for hold, of := range s.holds {
		if of == s.current {
			s.tell.extended(hold, of.sentNs, nowNs, of.sentNs+of.timeoutNs)
		}
	}
}

// opened: the server accepted a session, new or old, for so long; it was asked to at that time.
func (s *zkSessions) opened(id uint64, sentNs, timeoutNs, nowNs int64) {
	if id != s.current.id {
		s.current = &zkSession{id: id}
	}
	s.current.noted, s.current.sentNs, s.current.timeoutNs = nil, sentNs, timeoutNs
	s.lengthen(nowNs)
}

// answered: the server answered what the current session sent at that time.
func (s *zkSessions) answered(sentNs, nowNs int64) {
	current, beforeNs := s.current, s.current.sentNs
	for len(current.noted) > 0 && current.noted[0].readNs+s.tickNs <= sentNs {
		current.sentNs = max(current.sentNs, current.noted[0].sentNs)
		current.noted = current.noted[1:]
	}
	current.noted = append(current.noted, zkAnswered{sentNs, nowNs})
	if current.sentNs > beforeNs {
		s.lengthen(nowNs)
	}
}

// --- connections ---------------------------------------------------------------------------------

func (s *zkSessions) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	made, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &zkConnection{Conn: made, of: s, requests: map[int32]zkSent{}}, nil
}

// zkConnection is one connection, which is written to and read from by a goroutine each.
type zkConnection struct {
	net.Conn
	of       *zkSessions
	openedNs int64 // when the opening was sent
	accepted bool
	requests map[int32]zkSent // by number, not yet answered
	pings    []int64          // when those were sent that are not yet answered
	read     []byte           // of the message that is being read
}

type zkSent struct {
	atNs  int64
	op    int32
	place *zkPlace // of the newest Lock, if it creates its node so, or looks at the one before it
}

func (c *zkConnection) Write(message []byte) (int, error) {
	c.writes(message[4:])
	return c.Conn.Write(message)
}

func (c *zkConnection) writes(message []byte) {
	c.of.mutex.Lock()
	defer c.of.mutex.Unlock()
	nowNs := monotonicNs()
	if c.openedNs == 0 {
		c.openedNs = nowNs
		return
	}
	number, op := zkInt(message, 0), zkInt(message, zkOpAt)
	if number == zkPing {
		c.pings = append(c.pings, nowNs)
		return
	}
	sent := zkSent{atNs: nowNs, op: op}
	switch place := c.of.place; op {
	case zkCreate:
		if zkText(message, zkPathAt+4+len(zkText(message, zkPathAt))) == place.hold {
			place.asked, sent.place = true, place
		}
	case zkGetData:
		if path.Dir(zkText(message, zkPathAt)) == path.Dir(place.path) {
			sent.place = place
		}
	}
	c.requests[number] = sent
}

// Read has told an answer before the library has it.
func (c *zkConnection) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.read = append(c.read, into[:n]...)
	for len(c.read) >= 4 {
		end := 4 + int(zkInt(c.read, 0))
		if len(c.read) < end {
			break
		}
		c.reads(c.read[4:end])
		c.read = c.read[end:]
	}
	return n, err
}

func (c *zkConnection) reads(message []byte) {
	c.of.mutex.Lock()
	defer c.of.mutex.Unlock()
	nowNs := monotonicNs()
	if !c.accepted {
		c.accepted = true
		if id := binary.BigEndian.Uint64(message[zkSessionAt:]); id != 0 { // 0: the session is over
			c.of.opened(id, c.openedNs, int64(zkInt(message, zkTimeoutAt))*1e6, nowNs)
		}
		return
	}
	number, failed := zkInt(message, 0), zkInt(message, zkErrAt)
	if number == zkPing && len(c.pings) > 0 {
		c.of.answered(c.pings[0], nowNs)
		c.pings = c.pings[1:]
		return
	}
	sent, found := c.requests[number]
	delete(c.requests, number)
	if !found || failed == zkSessionExpired || failed == zkSessionMoved {
		return
	}
	c.of.answered(sent.atNs, nowNs)
	if failed != 0 {
		return
	}
	switch {
	case sent.op == zkGetChildren2:
		c.of.listed = c.of.current
	case sent.place == nil:
	case sent.op == zkCreate:
		sent.place.path = zkText(message, zkCreatedAt)
	default:
		sent.place.wait()
	}
}

func (p *zkPlace) wait() {
	select {
	case <-p.waits:
	default:
		close(p.waits)
	}
}

func zkInt(message []byte, at int) int32 { return int32(binary.BigEndian.Uint32(message[at:])) }

// zkText is a string, or bytes, behind its length.
func zkText(message []byte, at int) string {
	return string(message[at+4 : at+4+int(zkInt(message, at))])
}
