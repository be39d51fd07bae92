package store_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
)

// fillUp writes until the store refuses or until stop is closed, and returns how many writes were acknowledged.
func fillUp(ctx context.Context, s store.Store, stop <-chan string) (acknowledged int, said string, err error) {
	value := make([]byte, 200<<10)
	for ; ; acknowledged++ {
		select {
		case said = <-stop:
			return acknowledged, said, nil
		default:
		}
		key := "filler/" + strconv.Itoa(acknowledged)
		if _, err := s.Commit(ctx, store.Txn{Then: []store.Op{store.Put{Key: key, Value: value}}}); err != nil {
			return acknowledged, "", err
		}
	}
}

func checkFilled(t *testing.T, s store.Store, acknowledged int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	entries, _, err := s.List(ctx, "filler/")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < acknowledged {
		t.Errorf("%d records of %d acknowledged ones are there", len(entries), acknowledged)
	}
}

func TestQuotaIsUsedUp(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	options.QuotaBytes = 4 << 20
	startEmbedded(t, options)
	board := new(problem.Board)
	s := openClient(t, id, options.ListenClient, func(o *store.Options) { o.Board = board })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	acknowledged, _, err := fillUp(ctx, s, nil)
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("after %d writes: %v", acknowledged, err)
	}
	awaitProblem(t, board, "store.full", true)
	checkFilled(t, s, acknowledged) // reading goes on
	if health := s.Health(ctx); !health.Full || !health.Writable {
		t.Errorf("health %+v", health)
	}
	if _, _, err := s.Grant(ctx, 1); !errors.Is(err, store.ErrFull) {
		t.Errorf("a lease in a full store: %v", err)
	}
}

// The disk under one of three members is full: that member stops, its process does not, the others go on, leases
// included. With space again and a restart it comes back, and nothing is lost.
func TestDiskUnderAMemberIsFull(t *testing.T) {
	id := newIdentity(t)
	c := &cluster{TB: t, id: id, options: memberOptions(t, id, 3), running: make([]*process, 3)}
	t.Cleanup(func() {
		for i := range c.running {
			c.kill(i)
		}
	})
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if said := c.startWith(2, []string{diskEnvironment + "=56m"}, attributes); said != "listening" {
		t.Skipf("a disk of its own for one process needs a mount namespace (root, or unprivileged user namespaces): %s", said)
	}
	c.start(0)
	c.start(1)
	c.awaitQuorum()
	s := c.open()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	acknowledged, said, err := fillUp(ctx, s, c.running[2].lines)
	if err != nil {
		t.Fatalf("the store failed with one member's disk, after %d writes: %v", acknowledged, err)
	}
	if !strings.HasPrefix(said, "stopped: ") || !strings.Contains(said, store.ErrFull.Error()) || !strings.Contains(said, c.options[2].Dir) {
		t.Errorf("the member says %q", said)
	}
	t.Logf("after %d writes: %s", acknowledged, said)
	checkFilled(t, s, acknowledged)
	lease, _, err := s.Grant(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // also past the moment at which the full member would have been elected
		if _, err := s.KeepAlive(ctx, lease); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(ctx, put("a", "0")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.running[2].command.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("the process around the full member has ended: %v", err)
	}

	if _, err := io.WriteString(c.running[2].stdin, "500m\n"); err != nil {
		t.Fatal(err)
	}
	if said := <-c.running[2].lines; said != "listening" {
		t.Fatalf("with space again the member says %q", said)
	}
	c.kill((c.leader(s) + 1) % 2) // one of the others, so that the returned one is needed
	checkFilled(t, s, acknowledged)
	if _, err := s.Commit(ctx, put("a", "1")); err != nil {
		t.Error(err)
	}
}
