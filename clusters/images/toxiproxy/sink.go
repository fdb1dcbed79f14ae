package toxiproxy

import "io"

// When a receiver is gone, nobody takes what is still on its way to it. The toxic before blocks,
// whoever adds or removes a toxic waits for it with the proxy's lock held, and the whole API hangs
// (issue 558). So the rest is taken and thrown away until the sender ends.
func (link *ToxicLink) sink() {
	go func() { _, _ = io.Copy(io.Discard, link.output) }()
}
