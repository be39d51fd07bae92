package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker"
	"github.com/holdfast/holdfast/internal/broker/settings"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/problem"
)

var problemBroker = problem.Define(problem.Kind{
	Code: "broker.not-running", Severity: problem.Critical,
	Meaning: "This node's broker cannot begin, because of what is in its directory: it launches nothing. Brokers of other nodes are not concerned.",
	Remedy:  "Do as the detail says; the agent tries again every few seconds.",
})

const (
	brokerDir      = "broker"      // in an agent's directory
	brokerLock     = "broker-lock" // locked by the agent whose broker uses it
	brokerPause    = 50 * time.Millisecond
	brokerTryAgain = 5 * time.Second
)

// brokerRoom is this node's broker. It needs neither the store nor the cluster's configuration, and runs from the moment on at which this
// agent has its node's place.
type brokerRoom struct {
	*Agent
	opened   atomic.Pointer[broker.Broker]
	why      atomic.Pointer[string]            // it is not open
	settings atomic.Pointer[settings.Settings] // what broker.yaml says; nil: there is none that can be used
}

// use is the broker, or why there is none.
func (r *brokerRoom) use() (*broker.Broker, error) {
	if b := r.opened.Load(); b != nil {
		return b, nil
	}
	if why := r.why.Load(); why != nil {
		return nil, api.NotNow("this node's broker does not run: %s", *why)
	}
	return nil, api.Unavailable("this node's broker is starting or stopping; ask again in a moment")
}

// run opens the broker and closes it when the context ends. An agent that this one replaces has the directory until its broker has ended.
func (r *brokerRoom) run(ctx context.Context) {
	lock, err := r.claim(ctx)
	if err != nil {
		r.log.Error("the broker's directory cannot be locked: nothing keeps another agent from using it", "error", err)
	}
	if lock != nil {
		defer lock.Close()
	}
	for ctx.Err() == nil {
		opened, err := broker.Open(broker.Options{
			Dir: filepath.Join(r.options.Dir, brokerDir), Name: r.self.Name, Logger: r.log, Board: r.board, Registerer: r.registry, Event: r.told, Now: r.now,
			Peers: brokerPeers{r.Agent}, Sign: r.sign,
		})
		if err != nil {
			text := err.Error()
			r.why.Store(&text)
			r.board.Set(problemBroker, r.self.Name, text, r.now())
			r.log.Error("this node's broker does not run", "error", err)
			wait(ctx, brokerTryAgain)
			continue
		}
		r.board.Clear(problemBroker, r.self.Name)
		r.opened.Store(opened)
		r.serveRequesters(ctx)
		r.opened.Store(nil)
		r.why.Store(nil)
		if err := opened.Close(); err != nil {
			r.log.Error("closing the broker", "error", err)
		}
	}
}

// claim locks the broker's directory as soon as no other agent has it.
func (r *brokerRoom) claim(ctx context.Context) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(r.options.Dir, brokerLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || ctx.Err() != nil {
			return nil, errors.Join(err, file.Close())
		}
		wait(ctx, brokerPause)
	}
}

// told puts what a broker tells into this node's events. Launches are not logged as well: there may be many.
func (r *brokerRoom) told(kind, subject, message string, fields map[string]string) {
	if _, launch := fields["launch"]; !launch {
		r.event(kind, subject, message, fields)
		return
	}
	r.events.add(event{At: time.Now(), Node: r.self.Name, Kind: kind, Subject: subject, Message: message, Fields: fields})
}

// brokerPeers are the brokers of the other nodes.
type brokerPeers struct{ *Agent }

// Names are the other nodes.
func (p brokerPeers) Names() []string { return slices.Sorted(maps.Keys(p.peers.numbers())) }

// Rules asks the broker of another node.
func (p brokerPeers) Rules(ctx context.Context, name string, ask broker.Ask) (broker.Part, error) {
	lnn, known := p.peers.numbers()[name]
	if !known {
		return broker.Part{}, fmt.Errorf("node %q is not in the configuration any more", name)
	}
	client, err := p.peers.of(lnn)
	if err != nil {
		return broker.Part{}, err
	}
	request := &holdfastv1.BrokerRulesRequest{Digest: ask.Digest[:], Offset: int64(ask.Offset)}
	if ask.Wanted != (broker.Digest{}) {
		request.Wanted = ask.Wanted[:]
	}
	answer, err := client.BrokerRules(ctx, request)
	if err != nil {
		return broker.Part{}, err
	}
	part := broker.Part{InUse: answer.InUse, Total: int(answer.Total), Text: answer.Part}
	copy(part.Digest[:], answer.Digest)
	return part, nil
}

// BrokerRules answers the broker of another node. Where the store has not been read yet, the configuration in this node's directory says
// which nodes there are: brokers work without the store.
func (s peerService) BrokerRules(ctx context.Context, r *holdfastv1.BrokerRulesRequest) (*holdfastv1.BrokerRulesResponse, error) {
	config := s.begun
	if v := s.view.Load(); v != nil {
		config = v.world.Config
	}
	if config == nil {
		config = &cluster.Config{}
	}
	if _, err := callerIn(ctx, config); err != nil {
		return nil, err
	}
	b, err := s.broker.use()
	if err != nil {
		return nil, err
	}
	ask := broker.Ask{Offset: int(max(0, min(r.Offset, 1<<30)))}
	copy(ask.Digest[:], r.Digest)
	copy(ask.Wanted[:], r.Wanted)
	part := b.AnswerRules(ask)
	if !part.InUse {
		return &holdfastv1.BrokerRulesResponse{}, nil
	}
	return &holdfastv1.BrokerRulesResponse{InUse: true, Digest: part.Digest[:], Total: int64(part.Total), Part: part.Text}, nil
}

var _ broker.Peers = brokerPeers{}
