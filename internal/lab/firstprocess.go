package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// firstLineFD is the first process's end of the line to the host.
const firstLineFD = 3

// firstProcess is pid 1 of a member. It makes the member's world, runs its services and buries its orphans.
type firstProcess struct {
	mu       sync.Mutex // also held while a service starts, so that its death is not seen before its birth
	encoder  *json.Encoder
	services map[string]int // running services by pid
	heir     heir           // a process that is to replace a service
}

// heir is a process that is to take a running service's place.
type heir struct {
	pid     int // 0: there is none
	service string
	end     chan string // "" when it has, or how it ended before
}

// runFirstProcess is the life of a member's first process. It ends only with the line to the host.
func runFirstProcess() error {
	if os.Getpid() != 1 {
		return errors.New("this command is run by the lab host only: use `holdfast lab up`")
	}
	ignoreSignals(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	syscall.CloseOnExec(firstLineFD)
	line := os.NewFile(firstLineFD, "line")
	first := &firstProcess{encoder: json.NewEncoder(line), services: make(map[string]int)}
	decoder := json.NewDecoder(line)
	for {
		var o order
		if err := decoder.Decode(&o); err != nil {
			return nil //nolint:nilerr // the host is gone, and so are we
		}
		var answer report
		if err := first.do(o); err != nil {
			answer.Error = err.Error()
		}
		first.mu.Lock()
		err := first.encoder.Encode(answer)
		first.mu.Unlock()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
	}
}

// ignoreSignals keeps this process alive through signals. Unlike signal.Ignore it is not inherited by what this
// process starts.
func ignoreSignals(signals ...os.Signal) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, signals...)
	go func() {
		for range received {
		}
	}()
}

func (f *firstProcess) do(o order) error {
	switch o.Op {
	case "boot":
		if err := boot(*o.Boot); err != nil {
			return err
		}
		go f.bury()
		return nil
	case "run":
		return f.run(o)
	case "replace":
		return f.replace(o)
	case "settle":
		return settle(*o.Boot)
	case "signal":
		f.mu.Lock()
		defer f.mu.Unlock()
		if pid := f.services[o.Service]; pid > 0 {
			return syscall.Kill(pid, syscall.Signal(o.Signal))
		}
		return nil // it has just ended, and the host is about to hear
	}
	return fmt.Errorf("unknown order %q", o.Op)
}

// run starts a service in a session of its own.
func (f *firstProcess) run(o order) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	pid, err := startService(o)
	if err == nil {
		f.services[o.Service] = pid
	}
	return err
}

// replaceLimit bounds how long a process may take to take a service's place.
const replaceLimit = initPatience - 2*time.Second

// replace starts a process that is to take the place of a running service, and waits until the service has ended and it runs on, or it
// has ended before.
func (f *firstProcess) replace(o order) error {
	f.mu.Lock()
	if f.services[o.Service] == 0 {
		f.mu.Unlock()
		return errors.New("it is not running")
	}
	pid, err := startService(o)
	end := make(chan string, 1)
	if err == nil {
		f.heir = heir{pid: pid, service: o.Service, end: end}
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	timer := time.NewTimer(replaceLimit)
	defer timer.Stop()
	select {
	case how := <-end:
		if how != "" {
			return fmt.Errorf("the one that should replace it %s; its log says why", how)
		}
		return nil
	case <-timer.C:
		f.mu.Lock()
		f.heir = heir{}
		f.mu.Unlock()
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return fmt.Errorf("the one that should replace it did not within %v, and was killed", replaceLimit)
	}
}

// startService starts a process in a session of its own.
func startService(o order) (pid int, err error) {
	log, err := os.OpenFile(filepath.Join(o.Work, o.Service+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	process, err := os.StartProcess(o.Argv[0], o.Argv, &os.ProcAttr{
		Dir: o.Work, Env: o.Env, Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, err
	}
	pid = process.Pid
	return pid, process.Release()
}

// bury waits for every child, born here or orphaned, and tells the host about services.
func (f *firstProcess) bury() {
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, syscall.SIGCHLD)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if pid <= 0 {
			<-deaths // one may be pending for several deaths, hence the loop
			continue
		}
		f.mu.Lock()
		if pid == f.heir.pid {
			f.heir.end <- describe(status)
			f.heir = heir{}
		}
		for service, running := range f.services {
			if running == pid && service == f.heir.service { // it goes on in another process
				f.services[service] = f.heir.pid
				f.heir.end <- ""
				f.heir = heir{}
			} else if running == pid {
				delete(f.services, service)
				_ = f.encoder.Encode(report{Exited: true, Service: service, How: describe(status)})
			}
		}
		f.mu.Unlock()
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "killed by signal " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", status.ExitStatus())
}
