package toxiproxy

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Toxiproxy accepts a connection before it dials, and when the dial is refused it hangs up. Some
// programs try again when they are refused but take a connection that is hung up on as proof that
// the other side has failed. For such links (by the beginning of their names) the dial is tried
// again in their place, as often as they would: ZooKeeper's followers try five times, a tenth of a
// second apart, to reach a leader that does not listen yet.
const (
	patientLinks = "LOCKBENCH_PATIENT_LINKS"
	tries        = 5
	pause        = 100 * time.Millisecond
)

// A proxy that is being stopped waits for the dial under way, with its lock held. A frozen server
// may never answer one, so stopping also ends the dial.
func (proxy *Proxy) dial() (net.Conn, error) {
	dialing, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-proxy.tomb.Dying():
			cancel()
		case <-dialing.Done():
		}
	}()
	beginning := os.Getenv(patientLinks)
	patient := beginning != "" && strings.HasPrefix(proxy.Name, beginning)
	var dialer net.Dialer
	for try := 1; ; try++ {
		upstream, err := dialer.DialContext(dialing, "tcp", proxy.Upstream)
		if !patient || try == tries || !errors.Is(err, syscall.ECONNREFUSED) {
			return upstream, err
		}
		select {
		case <-time.After(pause):
		case <-dialing.Done():
			return nil, err
		}
	}
}
