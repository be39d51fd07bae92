package link

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace that is kept open.
type namespace struct{ file *os.File }

const ownNamespace = "/proc/thread-self/ns/net"

// currentNamespace opens the network namespace of the calling thread.
func currentNamespace() (*namespace, error) {
	file, err := os.Open(ownNamespace)
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace of this thread: %w", err)
	}
	return &namespace{file}, nil
}

func (n *namespace) close() { _ = n.file.Close() }

// run calls f on a thread of the namespace. Where the process lives in one namespace, which is the rule, that is the
// calling thread and needs no privilege.
func (n *namespace) run(f func() error) error {
	runtime.LockOSThread()
	home, err := currentNamespace()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.close()
	if same, err := sameFile(home.file, n.file); err != nil || same {
		defer runtime.UnlockOSThread()
		if err != nil {
			return err
		}
		return f()
	}
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering the network namespace: %w (this needs CAP_SYS_ADMIN)", err)
	}
	err = f()
	if back := unix.Setns(int(home.file.Fd()), unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread() // otherwise the thread stays locked and dies with its goroutine: nobody may inherit it
	}
	return err
}

func sameFile(a, b *os.File) (bool, error) {
	infoA, err := a.Stat()
	if err != nil {
		return false, fmt.Errorf("comparing network namespaces: %w", err)
	}
	infoB, err := b.Stat()
	if err != nil {
		return false, fmt.Errorf("comparing network namespaces: %w", err)
	}
	return os.SameFile(infoA, infoB), nil
}
