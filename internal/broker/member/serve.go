package member

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/broker/pin"
)

// Bounds of the server. What is more is closed at once, or cut off.
const (
	maxConnections = 1024
	maxFromOne     = 64               // connections of one address
	maxHeader      = 16 << 10         // bytes
	requestTimeout = 10 * time.Second // from connecting to the end of the answer
)

// serve answers until the context ends.
func (s *Station) serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+NodesPath, s.forReaders(s.nodes))
	mux.HandleFunc("GET "+StatusPath, s.forReaders(s.status))
	mux.HandleFunc("GET "+HealthPath, s.forReaders(func() (int, []byte) { return http.StatusOK, HealthAnswer(s.options.Key, s.options.Health()) }))
	mux.HandleFunc("POST "+BeatPath, s.beat)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: requestTimeout,
		MaxHeaderBytes: maxHeader,
		TLSNextProto:   map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 alone: one request at a time is what the bounds count
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),   // of handshakes that fail: the caller learns it, and strangers could fill the log
	}
	server.SetKeepAlivesEnabled(false) // thousands of members would each hold a connection
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(tls.NewListener(newDoor(listener), pin.Server(s.options.Certificate)))
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("answering for the fleet: %w", err)
}

// complaint is the body of an answer that is none.
type complaint struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) //nolint:gosec // it is JSON and says so; whoever has gone does not miss it
}

func complain(code int, text string) (int, []byte) { return code, written(complaint{text}) }

// forReaders answers those who may read.
func (s *Station) forReaders(say func() (int, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		who, shown := pin.Of(request.TLS)
		s.lock.Lock()
		may := s.readers.may(who, shown)
		s.lock.Unlock()
		var code int
		var body []byte
		switch {
		case may:
			code, body = say()
		case shown:
			code, body = complain(http.StatusForbidden, "the certificate "+who.String()+" is not listed in fleet.readers of gateway "+s.options.Key)
		default:
			code, body = complain(http.StatusForbidden, "gateway "+s.options.Key+" answers those whose certificate is listed in fleet.readers, and none was shown")
		}
		answer(w, code, body)
	}
}

func (s *Station) nodes() (int, []byte) {
	if s.roster == nil {
		return s.elsewhere()
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	return http.StatusOK, s.roster.Nodes()
}

func (s *Station) status() (int, []byte) {
	if s.roster == nil {
		return s.elsewhere()
	}
	own := s.options.Health() // which looks at files, and needs no lock
	s.lock.Lock()
	defer s.lock.Unlock()
	return http.StatusOK, s.roster.Status(own, s.options.Now())
}

func (s *Station) elsewhere() (int, []byte) {
	return complain(http.StatusNotFound, "gateway "+s.options.Key+" is not the central manager of its fleet; ask "+s.options.Central.Address)
}

// heard is the answer to a beat.
type heard struct {
	IntervalMS int64 `json:"beat_interval_ms"` // until the next one
}

// beat takes a member's beat.
func (s *Station) beat(w http.ResponseWriter, request *http.Request) {
	code, body := s.hear(w, request)
	answer(w, code, body)
}

func (s *Station) hear(w http.ResponseWriter, request *http.Request) (int, []byte) {
	if s.roster == nil {
		return s.elsewhere()
	}
	who, shown := pin.Of(request.TLS)
	if !shown {
		return complain(http.StatusForbidden, "a beat is taken from whoever shows the certificate of a member, and none was shown")
	}
	s.lock.Lock()
	_, listed := s.roster.by[who]
	s.lock.Unlock()
	var b Beat
	if listed { // of others nothing is read
		text, err := io.ReadAll(http.MaxBytesReader(w, request.Body, MaxBeat))
		if err != nil {
			return complain(http.StatusRequestEntityTooLarge, fmt.Sprintf("the beat was not read: %s", err))
		}
		if b, err = ParseBeat(text); err != nil {
			return complain(http.StatusBadRequest, err.Error())
		}
	}
	s.lock.Lock()
	err := s.roster.Hear(who, b, s.options.Now())
	changed := s.roster.changed
	s.lock.Unlock()
	var refusal *Refusal
	if errors.As(err, &refusal) {
		code := http.StatusConflict
		if refusal.Kind == Stranger || refusal.Kind == OtherKey {
			code = http.StatusForbidden
		}
		return complain(code, refusal.Text)
	}
	if changed {
		signal(s.dirty)
	}
	return http.StatusOK, written(heard{s.roster.Interval().Milliseconds()})
}

// readComplaint is the reason in an answer; empty if there is none that can be shown.
func readComplaint(body []byte) string {
	var c complaint
	if json.Unmarshal(body, &c) != nil || len(c.Error) > 1000 || !printable(c.Error, true) {
		return ""
	}
	return c.Error
}

// door bounds the connections of a listener, in all and from one address.
type door struct {
	net.Listener
	lock sync.Mutex
	all  int
	from map[netip.Addr]int
}

func newDoor(l net.Listener) *door { return &door{Listener: l, from: map[netip.Addr]int{}} }

// Accept returns the next connection that is within the bounds, and closes those that are not.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := origin(conn.RemoteAddr())
		d.lock.Lock()
		fits := d.all < maxConnections && d.from[from] < maxFromOne
		if fits {
			d.all++
			d.from[from]++
		}
		d.lock.Unlock()
		if fits {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { d.leave(from) })}, nil
		}
		_ = conn.Close()
	}
}

func (d *door) leave(from netip.Addr) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.all--
	if d.from[from]--; d.from[from] <= 0 {
		delete(d.from, from)
	}
}

// origin is where connections are counted: an IPv6 client has a whole /64 to itself.
func origin(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() {
		prefix, _ := ip.Prefix(64)
		return prefix.Addr()
	}
	return ip
}

type counted struct {
	net.Conn
	leave func()
}

// Close makes room for another connection.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}
