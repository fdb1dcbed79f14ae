// The sidecar of the Go libraries: speaks docs/sidecar.md with one worker process of the bench.
//
// It is given the name of a lock (see kinds) and, in its environment, where the worker listens. It
// connects, says hello, and serves until that connection ends; then it ends at once, as if killed.
// Every client has a goroutine of its own, in which all of its calls run, one after the other.
//
// Guarantees: one answer per request; what a library returns and this program does not map is
// unknown, in the library's words. Does not guarantee that a call ends.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const protocol = 1

// In the environment: the worker's address, and the word that it knows its own sidecar by.
const (
	workerEnvironment = "LOCKBENCH_SIDECAR_WORKER"
	wordEnvironment   = "LOCKBENCH_SIDECAR_WORD"
)

// kind is a library as its user drives it.
type kind struct {
	module  string // whose version is told
	connect func(setup) (client, error)
}

// kinds are all locks, by the name that the bench calls them; each library enters its own.
var kinds = map[string]kind{
	"nothing": {"golang.org/x/sys", func(setup) (client, error) { return nothing{}, nil }},
}

// setup is what a client is made of; times are in seconds.
type setup struct {
	nodes    []string
	timeoutS float64
	ttlS     float64
	safe     bool
	tell     tell
}

// client is one client of a library. A hold's id is 16 hexadecimal digits.
type client interface {
	acquire(key, hold string, ttlS, waitS float64) answer
	release(key, hold string) answer
	extend(key, hold string, ttlS float64) answer
	close()
}

type request struct {
	ID       int64   `json:"id"`
	Call     string  `json:"call"`
	Client   int64   `json:"client"`
	Nodes    [][]any `json:"nodes"`
	TimeoutS float64 `json:"timeout_s"`
	TTLS     float64 `json:"ttl_s"`
	Safe     bool    `json:"safe"`
	Key      string  `json:"key"`
	Hold     string  `json:"hold"`
	WaitS    float64 `json:"wait_s"`
}

// answer is what is said to a request. Times are nanoseconds of CLOCK_MONOTONIC.
type answer struct {
	ID           int64  `json:"id"`
	Said         string `json:"said"`
	Reason       string `json:"reason,omitempty"`
	SentNs       int64  `json:"sent_ns"`
	ValidUntilNs *int64 `json:"valid_until_ns"`
	Fence        *int64 `json:"fence"`
}

func granted(sentNs, validUntilNs int64, fence *int64) answer {
	return answer{Said: "granted", SentNs: sentNs, ValidUntilNs: &validUntilNs, Fence: fence}
}

func denied(reason string) answer { return answer{Said: "denied", Reason: reason} }

func unknown(err error) answer { return answer{Said: "unknown", Reason: oneLine(err)} }

var (
	released = answer{Said: "released"}
	notHeld  = answer{Said: "not-held"}
)

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// monotonicNs is the worker's clock, which Go's own time does not show.
func monotonicNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

func nanoseconds(seconds float64) int64 { return int64(seconds * 1e9) }

// stream is the way to the worker.
type stream struct {
	mutex sync.Mutex
	to    net.Conn
}

func (s *stream) write(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, err := s.to.Write(append(line, '\n')); err != nil {
		os.Exit(0) // the worker is gone
	}
}

// tell is where a client reports what happens to a hold in the background.
type tell struct {
	client int64
	stream *stream
}

func (t tell) extended(hold string, sentNs, acknowledgedNs, validUntilNs int64) {
	t.stream.write(map[string]any{
		"event": "extended", "client": t.client, "hold": hold,
		"sent_ns": sentNs, "acknowledged_ns": acknowledgedNs, "valid_until_ns": validUntilNs,
	})
}

func (t tell) lost(hold string) {
	t.stream.write(map[string]any{"event": "lost", "client": t.client, "hold": hold})
}

func main() {
	if len(os.Args) != 2 || kinds[os.Args[1]].connect == nil {
		fmt.Fprintln(os.Stderr, "usage: go-sidecar LOCK")
		os.Exit(2)
	}
	// The cores are shared with workers and servers. With a second processor the scheduler wakes a
	// second thread for every request: 65 of the 158 µs that an operation took then.
	runtime.GOMAXPROCS(1)
	library := kinds[os.Args[1]]
	connection, err := net.Dial("tcp", os.Getenv(workerEnvironment))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	worker := &stream{to: connection}
	worker.write(map[string]any{
		"hello": protocol, "library": library.module, "version": version(library.module),
		"word": os.Getenv(wordEnvironment), "now_ns": monotonicNs(),
	})
	serve(connection, worker, library)
}

func serve(from net.Conn, worker *stream, library kind) {
	seats := map[int64]chan request{}
	lines := bufio.NewReaderSize(from, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, "the worker asks with garbage:", err)
			os.Exit(1)
		}
		switch asked.Call {
		case "ping":
			worker.write(answer{ID: asked.ID, Said: "pong"})
			continue
		case "open":
			seats[asked.Client] = make(chan request, 16)
			go sit(seats[asked.Client], worker, library)
		}
		seats[asked.Client] <- asked
		if asked.Call == "close" {
			delete(seats, asked.Client)
		}
	}
}

// sit is the life of one client.
func sit(requests <-chan request, worker *stream, library kind) {
	opening := <-requests
	nodes := make([]string, len(opening.Nodes))
	for i, node := range opening.Nodes {
		nodes[i] = fmt.Sprintf("%v:%v", node[0], node[1])
	}
	made, err := library.connect(setup{
		nodes: nodes, timeoutS: opening.TimeoutS, ttlS: opening.TTLS, safe: opening.Safe,
		tell: tell{opening.Client, worker},
	})
	if err != nil {
		worker.write(answer{ID: opening.ID, Said: "failed", Reason: oneLine(err)})
		return
	}
	worker.write(answer{ID: opening.ID, Said: "opened"})
	for asked := range requests {
		var said answer
		switch asked.Call {
		case "acquire":
			said = made.acquire(asked.Key, asked.Hold, asked.TTLS, asked.WaitS)
		case "release":
			said = made.release(asked.Key, asked.Hold)
		case "extend":
			said = made.extend(asked.Key, asked.Hold, asked.TTLS)
		default:
			made.close()
			said = answer{Said: "closed"}
		}
		said.ID = asked.ID
		worker.write(said)
		if asked.Call == "close" {
			return
		}
	}
}

// nothing grants whatever is asked, so that the sidecar's own cost can be measured.
type nothing struct{}

func (nothing) acquire(_, _ string, _, _ float64) answer { return granted(1, 2, nil) }
func (nothing) release(_, _ string) answer               { return released }
func (nothing) extend(_, _ string, _ float64) answer     { return notHeld }
func (nothing) close()                                   {}

func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "unknown"
}
