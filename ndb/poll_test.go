package ndb

import (
	"syscall"
	"testing"
	"time"
)

// Whoever waits for the token while the connection is closed must not wait on what the descriptor's number stands for
// afterwards.
func TestNobodyReadsAfterClose(t *testing.T) {
	c := newFake(t, 1, 1).connect(Options{})
	c.Close()
	another, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(another)
	if another != c.epoll {
		if err := syscall.Dup3(another, c.epoll, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(c.epoll)
	}
	done := make(chan struct{})
	go func() {
		c.token.Lock()
		c.wait(nil, 20_000)
		c.token.Unlock()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits on another's descriptor")
	}
}
