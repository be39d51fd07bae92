package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/google/renameio/v2"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/store"
)

// keyRoster is where the members of the embedded store are on record. The node that leads the store writes what etcd says, so that
// every node learns by its watch whom to talk to, and whether to start or to end a member of its own.
const keyRoster = "store-members"

// rosterFile keeps the roster in the agent's directory, so that the next start knows whom to talk to.
const rosterFile = "store-members.json"

// rosterRecord is who is a member of the embedded store, and what the change of its members does.
type rosterRecord struct {
	Members []rosterMember `json:"members"`
	Change  string         `json:"change,omitempty"` // what it does or waits for; empty: the members are those of the configuration
	Fault   string         `json:"fault,omitempty"`  // what did not come to its end
}

// rosterMember is one member.
type rosterMember struct {
	ID      string `json:"id"` // etcd's number in hexadecimal digits
	Name    string `json:"name,omitempty"`
	Peer    string `json:"peer"` // "address:port" for traffic between members
	Learner bool   `json:"learner,omitempty"`
	Started bool   `json:"started,omitempty"`
}

func (r rosterRecord) equal(o rosterRecord) bool {
	return slices.Equal(r.Members, o.Members) && r.Change == o.Change && r.Fault == o.Fault
}

// at finds the member of a node by the address at which the others reach it.
func (r rosterRecord) at(peer string) (rosterMember, bool) {
	i := slices.IndexFunc(r.Members, func(m rosterMember) bool { return m.Peer == peer })
	if i < 0 {
		return rosterMember{}, false
	}
	return r.Members[i], true
}

// rosterOf writes down what etcd says. The names are the configuration's: a learner has none before it has started.
func rosterOf(present []store.Present, config *cluster.Config) rosterRecord {
	names := map[string]string{}
	for _, node := range config.Nodes {
		if len(node.Addresses) > 0 {
			names[peerAddress(node)] = node.Name
		}
	}
	var out rosterRecord
	for _, p := range present {
		name := p.Name
		if known, ok := names[p.Peer]; ok {
			name = known
		}
		out.Members = append(out.Members, rosterMember{ID: memberID(p.ID), Name: name, Peer: p.Peer, Learner: p.Learner, Started: p.Started})
	}
	return out
}

func memberID(id uint64) string { return strconv.FormatUint(id, 16) }

// peerAddress is where the other members reach the one on a node.
func peerAddress(node cluster.Node) string {
	return netip.AddrPortFrom(node.Addresses[0], StorePeerPort).String()
}

// hostPeers are the peer addresses of the hosts of the store that a configuration names.
func hostPeers(config *cluster.Config) []string {
	var peers []string
	for _, node := range config.Voters() {
		if len(node.Addresses) > 0 {
			peers = append(peers, peerAddress(node))
		}
	}
	return peers
}

// endpointsOf are the addresses at which clients reach the members behind peer addresses: this node's own first, if it votes.
func endpointsOf(roster rosterRecord, self string) []string {
	var first, voters, learners []string
	for _, m := range roster.Members {
		peer, err := netip.ParseAddrPort(m.Peer)
		if err != nil {
			continue
		}
		endpoint := netip.AddrPortFrom(peer.Addr(), StoreClientPort).String()
		switch {
		case m.Learner:
			learners = append(learners, endpoint) // it answers for its health only
		case m.Peer == self:
			first = append(first, endpoint)
		default:
			voters = append(voters, endpoint)
		}
	}
	return slices.Concat(first, voters, learners)
}

// rosterOfPeers is the roster of a store that is just being founded by the hosts that the configuration names.
func rosterOfPeers(peers []string) rosterRecord {
	var out rosterRecord
	for _, peer := range peers {
		out.Members = append(out.Members, rosterMember{Peer: peer})
	}
	return out
}

// readRoster reads the roster that was kept; empty if there is none.
func readRoster(dir string) (rosterRecord, error) {
	path := filepath.Join(dir, rosterFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return rosterRecord{}, nil
	}
	var roster rosterRecord
	if err == nil {
		err = json.Unmarshal(data, &roster)
	}
	if err != nil {
		return roster, fmt.Errorf("reading the members of the store from %s: %w; if the file is damaged, take a copy from another node", path, err)
	}
	return roster, nil
}

// keepRoster writes the roster into this node's directory.
func (a *Agent) keepRoster(roster rosterRecord) {
	path := filepath.Join(a.options.Dir, rosterFile)
	data, _ := json.Marshal(roster)
	if err := renameio.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		a.board.Set(problemDirectory, path, err.Error(), a.now())
		return
	}
	a.board.Clear(problemDirectory, path)
}

// putRoster takes in the record of the store's members.
func (r *replica) putRoster(entry store.Entry) error {
	var record rosterRecord
	if err := decode(entry, &record); err != nil {
		return err
	}
	r.roster, r.rosterRevision = record, entry.Revision
	return nil
}

func rosterMessages(roster rosterRecord) []*holdfastv1.RosterMember {
	var out []*holdfastv1.RosterMember
	for _, m := range roster.Members {
		out = append(out, &holdfastv1.RosterMember{Id: m.ID, Name: m.Name, Peer: m.Peer, Learner: m.Learner, Started: m.Started})
	}
	return out
}

func rosterFromMessages(messages []*holdfastv1.RosterMember) rosterRecord {
	var out rosterRecord
	for _, m := range messages[:min(len(messages), maxRoster)] {
		out.Members = append(out.Members, rosterMember{ID: m.Id, Name: m.Name, Peer: m.Peer, Learner: m.Learner, Started: m.Started})
	}
	return out
}

// maxRoster bounds what another node may say of the members; etcd itself advises at most seven.
const maxRoster = 16
