package toxics

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm rings after a time, some microseconds late. Go's own timers are up to a millisecond
// late, because the runtime waits for them in whole milliseconds (netpoll_epoll.go): a link of 0.1 ms
// would be one of 1 ms. It may also ring for a time that was set before.
type alarm struct {
	timer int
	file  *os.File
	rings chan struct{}
}

func newAlarm() *alarm {
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	made := &alarm{timer, os.NewFile(uintptr(timer), "alarm"), make(chan struct{}, 1)}
	go made.wait()
	return made
}

func (a *alarm) wait() {
	var expirations [8]byte
	for {
		if _, err := a.file.Read(expirations[:]); err != nil {
			return
		}
		select {
		case a.rings <- struct{}{}:
		default:
		}
	}
}

// set replaces what was set before. Zero would mean never.
func (a *alarm) set(wait time.Duration) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, wait.Nanoseconds()))}
	if err := unix.TimerfdSettime(a.timer, 0, &at, nil); err != nil {
		panic(err)
	}
}

func (a *alarm) stop() {
	if a != nil {
		_ = a.file.Close()
	}
}
