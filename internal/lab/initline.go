package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The host and a member's first process talk over a socket pair, one JSON value after another. The host sends orders,
// each is answered in turn; exits of services are told when they happen.

// order is what the host tells a first process to do.
type order struct {
	Op      string     `json:"op"` // boot, settle, run, replace, signal
	Boot    *bootOrder `json:"boot,omitempty"`
	Service string     `json:"service,omitempty"`
	Argv    []string   `json:"argv,omitempty"`
	Env     []string   `json:"env,omitempty"`
	Work    string     `json:"work,omitempty"` // working directory, and where the log goes
	Signal  int        `json:"signal,omitempty"`
}

// bootOrder says what machine the first process is to become.
type bootOrder struct {
	Member Member    `json:"member"`
	Dir    Directory `json:"dir"`
	Keep   []string  `json:"keep"` // directories that must stay visible though they lie under /run
}

// report is what a first process says.
type report struct {
	Error   string `json:"error,omitempty"`
	Exited  bool   `json:"exited,omitempty"` // not an answer: Service has ended
	Service string `json:"service,omitempty"`
	How     string `json:"how,omitempty"` // "exit code 1", "killed"
}

// initPatience bounds how long a first process may take for one order.
const initPatience = 20 * time.Second

// initLine is the host's end. Orders are sent one at a time, with the host's lock held.
type initLine struct {
	socket  *os.File
	encoder *json.Encoder
	answers chan report

	mu       sync.Mutex
	services map[string]string        // "" while it runs, then how it ended
	ended    map[string]chan struct{} // closed when the service ends
	gone     bool                     // the first process is dead
}

// linePair makes the two ends. The first is the host's.
func linePair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making the line to the first process: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "line"), os.NewFile(uintptr(fds[1]), "line"), nil
}

func newInitLine(socket *os.File) *initLine {
	l := &initLine{
		socket: socket, encoder: json.NewEncoder(socket), answers: make(chan report, 1),
		services: make(map[string]string), ended: make(map[string]chan struct{}),
	}
	go l.read()
	return l
}

func (l *initLine) close() { l.socket.Close() }

func (l *initLine) read() {
	decoder := json.NewDecoder(l.socket)
	for {
		var r report
		if err := decoder.Decode(&r); err != nil {
			break
		}
		if !r.Exited {
			l.answers <- r
			continue
		}
		l.mu.Lock()
		l.services[r.Service] = r.How
		close(l.ended[r.Service])
		l.mu.Unlock()
	}
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
	close(l.answers)
}

// ask sends one order and waits for its answer.
func (l *initLine) ask(o order) error {
	if err := l.encoder.Encode(o); err != nil {
		return fmt.Errorf("its first process is gone: %w", err)
	}
	select {
	case answer, ok := <-l.answers:
		if !ok {
			return fmt.Errorf("its first process is gone (see %s)", logFile)
		}
		if answer.Error != "" {
			return errors.New(answer.Error)
		}
		return nil
	case <-time.After(initPatience):
		l.close() // a late answer must not be taken for that of the next order
		return fmt.Errorf("its first process did not answer within %v", initPatience)
	}
}

func (l *initLine) boot(b bootOrder) error { return l.ask(order{Op: "boot", Boot: &b}) }

// settle waits until the interfaces of the member carry frames.
func (l *initLine) settle(b bootOrder) error { return l.ask(order{Op: "settle", Boot: &b}) }

// run starts a service, whose log goes to SERVICE.log in the directory work.
func (l *initLine) run(service string, argv, env []string, work string) error {
	if l.running(service) {
		return fmt.Errorf("the %s is already running", service)
	}
	l.mu.Lock()
	l.services[service] = ""
	l.ended[service] = make(chan struct{})
	l.mu.Unlock()
	err := l.ask(order{Op: "run", Service: service, Argv: argv, Env: env, Work: work})
	if err != nil {
		l.mu.Lock()
		l.services[service] = "did not start"
		l.mu.Unlock()
		return fmt.Errorf("starting the %s: %w", service, err)
	}
	return nil
}

// replace starts a process that is to take the place of a running service, and returns when it has.
func (l *initLine) replace(service string, argv, env []string, work string) error {
	if !l.running(service) {
		return fmt.Errorf("the %s is not running", service)
	}
	if err := l.ask(order{Op: "replace", Service: service, Argv: argv, Env: env, Work: work}); err != nil {
		return fmt.Errorf("replacing the %s: %w", service, err)
	}
	return nil
}

func (l *initLine) running(service string) bool {
	how, known := l.state(service)
	return known && how == ""
}

// state says how a service ended, "" while it runs; known is false if it never ran.
func (l *initLine) state(service string) (how string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how, known = l.services[service]
	return how, known
}

func (l *initLine) signal(service string, signal syscall.Signal) error {
	if !l.running(service) {
		return fmt.Errorf("the %s is not running", service)
	}
	return l.ask(order{Op: "signal", Service: service, Signal: int(signal)})
}

// endOf is closed when a service that has been started ends.
func (l *initLine) endOf(service string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended[service]
}

// end signals a service and waits until it has ended; after stopPatience it is killed, which is an error.
func (l *initLine) end(service string, signal syscall.Signal) error {
	ended := l.endOf(service)
	if err := l.signal(service, signal); err != nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-time.After(stopPatience):
	}
	if err := l.signal(service, syscall.SIGKILL); err != nil {
		return err
	}
	<-ended
	return fmt.Errorf("the %s did not end within %v and was killed", service, stopPatience)
}
