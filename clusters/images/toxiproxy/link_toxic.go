package toxics

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
)

// LinkToxic is all that Lockbench does to one stream of a link: cut it, delay it, limit its rate,
// slice it. It is put on a stream once and stays; only its state changes, for all connections at
// once and without touching them. Adding and removing Toxiproxy's own toxics interrupts each
// connection, with locks held: what is on its way then slips through, a receiver that does not read
// hangs the API, and a rate that is changed can crash it.
//
// A drop loses what is on its way and what comes, the end of the connection included. When it is
// over, every connection that was open during it ends: its stream has a hole. A stall keeps
// everything and delivers it in order when it is over; the sender may send about 1024 reads ahead.
// Latency and rate hold for what is on its way too, from the moment they are set.
type LinkToxic struct {
	setting sync.Mutex
	force   atomic.Pointer[inForce]
}

// LinkState is what a stream suffers. Its zero value: nothing.
type LinkState struct {
	Cut          string `json:"cut"` // "", "drop" or "stall"
	LatencyUS    int64  `json:"latency_us"`
	JitterUS     int64  `json:"jitter_us"` // at most; drawn for each chunk, which keep their order
	RateKBs      int64  `json:"rate_kb_s"`   // 0: no limit
	SliceBytes   int    `json:"slice_bytes"` // 0: no slices
	SliceDelayUS int64  `json:"slice_delay_us"`
}

const (
	dropped   = "drop"
	stalled   = "stall"
	chunksMax = 1024
	// What is sent at once under a rate takes this long.
	rateStep = 100 * time.Millisecond
)

type inForce struct {
	LinkState
	drops int           // how often a drop has begun or ended
	over  chan struct{} // closed when another state takes this one's place
}

// kept is what belongs to one connection.
type kept struct {
	started bool
	drops   int // of the state that the connection began in
	chunks  []*stream.StreamChunk
	ended   bool      // the sender has; the last chunk has no data then
	free    time.Time // when the line has sent what went before
}

// Check tells what is wrong with a state.
func (s LinkState) Check() error {
	if s.Cut != "" && s.Cut != dropped && s.Cut != stalled {
		return fmt.Errorf("no cut is called %q", s.Cut)
	}
	if min(s.LatencyUS, s.JitterUS, s.RateKBs, int64(s.SliceBytes), s.SliceDelayUS) < 0 {
		return fmt.Errorf("no figure may be negative: %+v", s)
	}
	return nil
}

// Set replaces the state.
func (t *LinkToxic) Set(state LinkState) {
	t.setting.Lock()
	defer t.setting.Unlock()
	old := t.current()
	if old.LinkState == state {
		return
	}
	next := &inForce{LinkState: state, drops: old.drops, over: make(chan struct{})}
	if (state.Cut == dropped) != (old.Cut == dropped) {
		next.drops++
	}
	t.force.Store(next)
	close(old.over)
}

func (t *LinkToxic) current() *inForce {
	if t.force.Load() == nil {
		t.force.CompareAndSwap(nil, &inForce{over: make(chan struct{})})
	}
	return t.force.Load()
}

func (t *LinkToxic) MarshalJSON() ([]byte, error) { return json.Marshal(t.current().LinkState) }

func (t *LinkToxic) UnmarshalJSON(data []byte) error {
	state := t.current().LinkState
	if err := json.Unmarshal(data, &state); err != nil {
		return err
	}
	if err := state.Check(); err != nil {
		return err
	}
	t.Set(state)
	return nil
}

func (t *LinkToxic) NewState() interface{} { return new(kept) }

func (t *LinkToxic) Pipe(stub *ToxicStub) {
	line := stub.State.(*kept)
	var clock *alarm
	defer func() { clock.stop() }()
	for {
		now := t.current()
		if !line.started {
			line.started, line.drops = true, now.drops
		}
		input := stub.Input
		if now.Cut == dropped {
			line.chunks = nil
		} else if line.drops != now.drops {
			end(stub)
			return
		} else if len(line.chunks) >= chunksMax {
			input = nil
		}
		if line.ended {
			input = nil
		}

		var output chan<- *stream.StreamChunk
		var due <-chan struct{}
		var piece *stream.StreamChunk
		var at time.Time
		if len(line.chunks) > 0 && now.Cut == "" {
			piece, at = line.next(now)
			if wait := time.Until(at); wait > 0 {
				if clock == nil {
					clock = newAlarm()
				}
				clock.set(wait)
				due = clock.rings
			} else if piece.Data == nil {
				end(stub)
				return
			} else {
				output = stub.Output
			}
		}

		select {
		case <-stub.Interrupt:
			return
		case <-now.over:
		case <-due:
		case chunk := <-input:
			if chunk == nil {
				line.ended = true
				chunk = &stream.StreamChunk{Timestamp: time.Now()}
			}
			if now.JitterUS > 0 {
				late := time.Duration(rand.Int64N(now.JitterUS)) * time.Microsecond
				chunk.Timestamp = chunk.Timestamp.Add(late)
			}
			line.chunks = append(line.chunks, chunk)
		case output <- piece:
			line.sent(len(piece.Data), at, now)
		}
	}
}

// end closes the stream's far side, and takes what the near side still sends.
func end(stub *ToxicStub) {
	stub.Close()
	go func() {
		for range stub.Input {
		}
	}()
}

// next returns what is to be sent next, and when.
func (line *kept) next(now *inForce) (*stream.StreamChunk, time.Time) {
	head := line.chunks[0]
	at := head.Timestamp.Add(time.Duration(now.LatencyUS) * time.Microsecond)
	if head.Data == nil {
		return head, at
	}
	size := len(head.Data)
	if now.SliceBytes > 0 {
		size = min(size, now.SliceBytes)
	}
	if now.RateKBs > 0 {
		size = min(size, int(now.RateKBs*rateStep.Milliseconds()))
	}
	if (now.RateKBs > 0 || now.SliceBytes > 0) && line.free.After(at) {
		at = line.free
	}
	if now.RateKBs > 0 {
		at = at.Add(time.Duration(size) * time.Millisecond / time.Duration(now.RateKBs))
	}
	return &stream.StreamChunk{Data: head.Data[:size], Timestamp: head.Timestamp}, at
}

// sent takes a piece away that has gone.
func (line *kept) sent(size int, at time.Time, now *inForce) {
	line.free = at
	// What was held up elsewhere is not caught up with in a burst.
	if latest := time.Now().Add(-rateStep); latest.After(at) {
		line.free = latest
	}
	if head := line.chunks[0]; size < len(head.Data) {
		head.Data = head.Data[size:]
		if now.SliceBytes > 0 {
			line.free = time.Now().Add(time.Duration(now.SliceDelayUS) * time.Microsecond)
		}
		return
	}
	line.chunks[0] = nil
	line.chunks = line.chunks[1:]
}

func init() {
	Register("link", new(LinkToxic))
}
