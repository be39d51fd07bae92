package agent

import (
	"context"
	"net"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/broker/door"
	"github.com/holdfast/holdfast/internal/broker/settings"
	"github.com/holdfast/holdfast/internal/problem"
)

var problemBrokerSettings = problem.Define(problem.Kind{
	Code: "broker.settings-unusable", Severity: problem.Error,
	Meaning: "The settings of this node's broker (broker.yaml), or what they name, cannot be used. What counted before still counts; where nothing did, no session tokens are made.",
	Remedy:  "Correct the file as the detail says; it is read again within seconds of a change.",
})

// settingsPause is from one look at broker.yaml to the next.
const settingsPause = 2 * time.Second

// serveRequesters reads the settings, again whenever they change, and answers requesters as they say, until the context ends.
func (r *brokerRoom) serveRequesters(ctx context.Context) {
	doors := &requesterDoors{brokerRoom: r}
	defer doors.shut()
	var seen settings.Stamp
	begun, whole := false, false
	for ctx.Err() == nil {
		// What could not be used is tried again at each look: the fault may be in a file that the settings name.
		if now := settings.Look(r.options.BrokerFile); r.options.BrokerFile != "" && (!begun || now != seen || !whole) {
			seen = now
			whole = r.readSettings(ctx, doors, !begun)
		}
		begun = true
		wait(ctx, settingsPause)
	}
}

// readSettings reads the file, and has the doors be as it says; false if something is wrong.
func (r *brokerRoom) readSettings(ctx context.Context, doors *requesterDoors, first bool) bool {
	s, err := settings.Read(r.options.BrokerFile)
	if err == nil {
		if r.settings.Swap(s) != nil || s != nil && !first {
			r.log.Info("the broker's settings were read", "file", r.options.BrokerFile)
		}
		err = doors.open(ctx, s)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.board.Is(err != nil, problemBrokerSettings, r.self.Name, text, r.now())
	return err == nil
}

// requesterDoors are where requesters come: a socket for the users of this machine, and SSH for others. They belong to serveRequesters.
type requesterDoors struct {
	*brokerRoom
	local, remote opening
}

// opening is one door.
type opening struct {
	at    string // where it is; empty: it is shut
	close func()
}

func (o *opening) shut() {
	if o.close != nil {
		o.close()
	}
	*o = opening{}
}

func (d *requesterDoors) shut() {
	d.local.shut()
	d.remote.shut()
	d.settings.Store(nil)
}

// open opens and shuts doors so that they are as the settings say. Who is known, and what is granted, is looked up for each request.
func (d *requesterDoors) open(ctx context.Context, s *settings.Settings) error {
	if s == nil {
		s = &settings.Settings{}
	}
	if d.local.at != s.Socket {
		d.local.shut()
		if s.Socket != "" {
			server, err := api.ListenRequesters(s.Socket, brokerService{brokerRoom: d.brokerRoom, requesters: true}, d.log)
			if err != nil {
				return err
			}
			d.local = d.serve(ctx, s.Socket, server)
		}
	}
	if d.remote.at == s.Door.Listen {
		return nil
	}
	d.remote.shut()
	if s.Door.Listen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", s.Door.Listen)
	if err != nil {
		return err
	}
	at := door.New(listener, d.known, d.log, door.Limits{})
	d.remote = d.serve(ctx, s.Door.Listen, api.NewRequesterServer(at, brokerService{brokerRoom: d.brokerRoom, requesters: true}, d.log))
	return nil
}

// known is whom the settings know now.
func (d *requesterDoors) known() settings.Door {
	if s := d.settings.Load(); s != nil {
		return s.Door
	}
	return settings.Door{}
}

func (d *requesterDoors) serve(ctx context.Context, at string, server *api.Server) opening {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(ctx); err != nil {
			d.log.Error("requesters are not answered any more", "at", at, "error", err)
		}
	}()
	return opening{at: at, close: func() { stop(); <-done }}
}
