package sshgate

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/recording"
)

// session is one session channel: a shell, a command or sftp, from its opening to its end.
type session struct {
	connection *connection
	client     ssh.Channel
	speaking   sync.Mutex // of the client's stderr, which takes one writer at a time

	terminal *terminalRequest // once asked for
	started  chan struct{}    // closed then, or when none can be any more
	writer   atomic.Pointer[recording.Writer]
	names    *fileNames  // of sftp
	broken   atomic.Bool // the recording has failed
	output   amount      // that is still recorded
	input    amount      // the same of what is typed, where that is recorded
	unheard  atomic.Bool // what is typed is not recorded, though there is no terminal to show it
	asked    bool        // for a program; of the goroutine that takes the requests
	exited   atomic.Bool // the client knows how the program ended
}

// What waits of requests while the gateway logs in at the target, or while the client does not read what it is told: so many for a channel, and each so long
// in bytes, but for the one that starts a program. What is more is refused.
const (
	waitingRequests = 128
	maxRequest      = 8 << 10
)

// failed is the exit status for what did not come to an end of its own: the one that ssh itself uses.
const failed = 255

// session serves a session channel.
func (c *connection) session(n ssh.NewChannel) {
	client, incoming, err := n.Accept()
	if err != nil {
		return
	}
	s := &session{connection: c, client: client, started: make(chan struct{})}
	closed := make(chan struct{}) // by the client
	c.lock.Lock()
	c.sessions[s] = true
	c.lock.Unlock()
	defer func() {
		c.lock.Lock()
		delete(c.sessions, s)
		c.lock.Unlock()
		_ = client.Close()
		<-closed // until then the library keeps the channel, so that it counts
	}()
	// Requests are taken at once: the library reads nothing else of the connection while one waits, and the way to the client's agent is by it.
	requests := make(chan *ssh.Request, waitingRequests)
	go func() {
		defer close(closed)
		defer close(requests)
		for r := range incoming {
			s.wait(r, requests)
		}
	}()
	target, err := c.reach()
	if err != nil {
		s.apologise(requests, err.Error())
		return
	}
	there, ofTarget, err := target.OpenChannel("session", nil)
	if err != nil {
		_, reason := rejection(err)
		s.apologise(requests, "the target opens no session: "+reason)
		return
	}
	s.run(requests, there, ofTarget)
}

// wait lets a request wait for its turn, as long as there is room for it. It never waits itself: the library reads nothing else of the connection meanwhile.
// It belongs to the goroutine that takes the requests.
func (s *session) wait(r *ssh.Request, turn chan<- *ssh.Request) {
	most, reason := maxRequest, ""
	if startsProgram(r.Type) {
		most = maxCommand + 4 // its length
		if s.asked {
			reason = "a program runs in this channel already"
		}
		s.asked = true
	}
	if len(r.Payload) > most {
		reason = fmt.Sprintf("it has more than %d bytes", most)
	}
	if reason == "" {
		select {
		case turn <- r:
			return
		default:
			reason = "too many requests are waiting"
		}
	}
	s.connection.noteRefused(r.Type, reason)
	s.connection.answer(r.Reply(false, nil))
}

// run carries the session between client and target.
func (s *session) run(requests <-chan *ssh.Request, there ssh.Channel, ofTarget <-chan *ssh.Request) {
	c := s.connection
	input := make(chan struct{})
	go func() { // from the client to the target
		defer close(input)
		<-s.started // what is sent before would be looked at as nothing
		if c.copy(there, s.client, &c.in, s.lookIn) == nil {
			_ = there.CloseWrite()
		}
	}()
	go func() { // the client's requests, until it closes the channel
		for r := range requests {
			s.request(r, there)
		}
		s.start()
		c.linger(input)
		_ = there.Close()
	}()
	var output sync.WaitGroup
	output.Go(func() { s.end(c.copy(s.client, there, &c.out, s.lookOut), there) })
	output.Go(func() { s.end(c.copy(stderr{s}, there.Stderr(), &c.out, s.lookOut), there) })
	for r := range ofTarget {
		s.fromTarget(r)
	}
	output.Wait()
	s.close()
	_ = there.Close()
}

// end is called when one of the outputs has ended; with an error if it could not be carried on to its end.
func (s *session) end(err error, there ssh.Channel) {
	if err != nil {
		_ = there.Close()
	}
}

// stderr is the client's second output, which the gateway itself speaks on as well.
type stderr struct{ s *session }

func (e stderr) Write(data []byte) (int, error) {
	e.s.speaking.Lock()
	defer e.s.speaking.Unlock()
	return e.s.client.Stderr().Write(data)
}

// say tells the user something.
func (s *session) say(text string) {
	_, err := fmt.Fprintf(stderr{s}, "\r\nholdfast: %s\r\n", text)
	s.connection.answer(err)
}

// apologise answers what the client asks for until it starts a program; then it says why there is none.
func (s *session) apologise(requests <-chan *ssh.Request, reason string) {
	for r := range requests {
		if !startsProgram(r.Type) {
			s.connection.answer(r.Reply(r.Type == "pty-req", nil))
			continue
		}
		s.decline(r, reason)
	}
}

// decline ends the channel instead of starting a program, and says why. The answer is yes all the same: after a no, OpenSSH's client ends
// without showing what it was told.
func (s *session) decline(r *ssh.Request, reason string) {
	s.connection.answer(r.Reply(true, nil))
	s.say(reason)
	s.exit(failed)
	_ = s.client.Close()
}

// exit tells the client how its program ended.
func (s *session) exit(status uint32) {
	if !s.exited.Swap(true) {
		_, err := s.client.SendRequest("exit-status", false, ssh.Marshal(exitStatus{status}))
		s.connection.answer(err)
	}
}

// start notes that a program was started, or that none can be any more, and lets the client's input through.
func (s *session) start() {
	select {
	case <-s.started:
	default:
		close(s.started)
	}
}

func (s *session) hasStarted() bool {
	select {
	case <-s.started:
		return true
	default:
		return false
	}
}

// request deals with one request of the client.
func (s *session) request(r *ssh.Request, there ssh.Channel) {
	c := s.connection
	v := c.rules.request(r.Type, r.Payload, s.hasStarted())
	switch v.do {
	case refuse:
		c.noteRefused(r.Type, v.reason)
		if startsProgram(r.Type) && !s.hasStarted() {
			s.decline(r, v.reason)
			return
		}
		s.say(v.reason)
		c.answer(r.Reply(false, nil))
		return
	case ignore, settle:
		c.answer(r.Reply(v.do == settle, nil))
		return
	}
	if v.starts != "" {
		if err := s.record(v); err != nil {
			s.decline(r, "the session cannot be recorded, so it does not begin: "+err.Error())
			return
		}
	}
	s.note(r)
	ok, err := there.SendRequest(r.Type, r.WantReply, r.Payload)
	c.answer(r.Reply(ok && err == nil, nil))
	if v.starts != "" {
		c.note(&c.done, v.starts)
		s.start()
	}
}

// note keeps what requests say about the terminal.
func (s *session) note(r *ssh.Request) {
	switch r.Type {
	case "pty-req":
		var terminal terminalRequest
		if ssh.Unmarshal(r.Payload, &terminal) == nil {
			s.terminal = &terminal
		}
	case "window-change":
		var window windowRequest
		if ssh.Unmarshal(r.Payload, &window) == nil {
			s.recorded(func(w *recording.Writer) error {
				return w.Resize(s.connection.elapsed(), int(window.Columns), int(window.Rows))
			})
		}
	}
}

// fromTarget deals with one request of the target.
func (s *session) fromTarget(r *ssh.Request) {
	c := s.connection
	switch r.Type {
	case "exit-status", "exit-signal":
		s.exited.Store(true)
		_, err := s.client.SendRequest(r.Type, false, r.Payload)
		c.answer(err)
	case "eow@openssh.com", "xon-xoff":
		_, err := s.client.SendRequest(r.Type, false, r.Payload)
		c.answer(err)
	}
	c.answer(r.Reply(false, nil))
}

// close ends the session towards the client, once the target's side is over and all of its output has been sent.
func (s *session) close() {
	if writer := s.writer.Load(); writer != nil {
		if err := writer.Close(s.connection.elapsed()); err != nil {
			s.lost(writer, err)
		}
	}
	if !s.exited.Load() && s.hasStarted() && s.connection.ctx.Err() == nil {
		s.say("the connection to the target is lost")
		s.exit(failed)
	}
	s.speaking.Lock() // the library does not let one goroutine end what another writes on
	_ = s.client.CloseWrite()
	s.speaking.Unlock()
	_ = s.client.Close()
}
