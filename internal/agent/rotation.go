package agent

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/placement"
)

// Bounds of what holders of service addresses tell each other.
const (
	maxPoolAnswers = 64 * 256               // one message: every node of every pool of a large cluster
	agreeEvery     = 100 * time.Millisecond // how often one other holder is asked where a pool's rotation stands
)

// answered tells the other nodes which nodes were given out and where that leaves the rotations, so that any of them can go on where
// this one is.
func (s *answers) answered(told dns.Told) {
	v := s.view.Load()
	if v == nil {
		return
	}
	request := &holdfastv1.AnsweredRequest{Holder: int32(s.self.LNN), Sequence: s.sequence.Add(1)}
	for _, g := range told.Answers {
		request.Answers = append(request.Answers, &holdfastv1.PoolAnswers{Pool: g.Pool.String(), Lnn: int32(g.LNN), Count: g.Count})
		s.given.Add(uint64(g.Count))
	}
	for _, standing := range told.Standings {
		request.Standings = append(request.Standings, &holdfastv1.PoolStanding{Pool: standing.Pool.String(), Known: standing.Known, Digest: standing.Digest})
	}
	for _, lnn := range choosers(v.world) {
		if client, err := s.peers.of(lnn); err == nil {
			go func() {
				try, cancel := context.WithTimeout(s.ctx, sampleTimeout)
				defer cancel()
				_, _ = client.Answered(try, request) // what is lost is made up for by agree
			}()
		}
	}
}

// Answered takes in what another holder gave out. Where it stands elsewhere afterwards and knows more answers, this node goes on from
// there.
func (s peerService) Answered(ctx context.Context, r *holdfastv1.AnsweredRequest) (*holdfastv1.AnsweredResponse, error) {
	node, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	told, theirs, err := toldBy(node, r)
	if err != nil {
		return nil, err
	}
	for _, own := range s.answers.server.Merge(told) {
		if known := theirs[own.Pool]; known > own.Known || known == own.Known && node.LNN < s.self.LNN {
			s.answers.agree(node.LNN, own)
		}
	}
	return &holdfastv1.AnsweredResponse{}, nil
}

// toldBy reads what a node says of the answers that it gave, and how many answers it knows of in each pool.
func toldBy(node cluster.Node, r *holdfastv1.AnsweredRequest) (told dns.Told, theirs map[cluster.PoolID]uint64, err error) {
	if int(r.Holder) != node.LNN || len(r.Answers) > maxPoolAnswers || len(r.Standings) > maxPoolAnswers {
		return told, nil, api.Invalid("%s cannot speak for node %d, or of %d pools and nodes at once", node.Name, r.Holder, len(r.Answers))
	}
	told.Answers = make([]dns.Answered, 0, len(r.Answers))
	for _, a := range r.Answers {
		id, err := cluster.NewPoolID(a.Pool)
		if err != nil {
			return told, nil, api.Invalid("%q is not the id of a pool", a.Pool)
		}
		told.Answers = append(told.Answers, dns.Answered{Pool: id, LNN: int(a.Lnn), Count: a.Count})
	}
	theirs = map[cluster.PoolID]uint64{}
	for _, standing := range r.Standings {
		id, err := cluster.NewPoolID(standing.Pool)
		if err != nil {
			return told, nil, api.Invalid("%q is not the id of a pool", standing.Pool)
		}
		told.Standings = append(told.Standings, dns.Standing{Pool: id, Known: standing.Known, Digest: standing.Digest})
		theirs[id] = standing.Known
	}
	return told, theirs, nil
}

// agree goes on from where another holder's rotation stands, unless it was asked a moment ago. At full rate, answers cross all the
// time and holders are never at one; then nothing is adopted, and it costs a question now and then.
func (s *answers) agree(lnn int, own dns.Standing) {
	s.mu.Lock()
	now := s.now()
	if last, asked := s.agreed[lnn]; asked && now.Sub(last) < agreeEvery {
		s.mu.Unlock()
		return
	}
	s.agreed[lnn] = now
	s.mu.Unlock()
	client, err := s.peers.of(lnn)
	if err != nil {
		return
	}
	go func() {
		try, cancel := context.WithTimeout(s.ctx, sampleTimeout)
		defer cancel()
		answer, err := client.Rotation(try, &holdfastv1.RotationRequest{Pool: own.Pool.String()})
		if err == nil && answer.Found {
			s.server.Adopt(rotationOf(own.Pool, answer), own)
		}
	}()
}

func rotationOf(id cluster.PoolID, r *holdfastv1.RotationResponse) dns.Rotation {
	rotation := dns.Rotation{Pool: id, Standing: placement.Standing{Known: r.Known}, Next: map[int]uint32{}}
	for _, n := range r.Nodes {
		if n.Taking {
			rotation.Nodes = append(rotation.Nodes, placement.NodeStanding{LNN: int(n.Lnn), Ahead: n.Ahead, Recent: n.Recent})
		}
		if n.HasNext {
			rotation.Next[int(n.Lnn)] = n.Next
		}
	}
	return rotation
}

// Rotation tells another holder where a pool's rotation stands.
func (s peerService) Rotation(ctx context.Context, r *holdfastv1.RotationRequest) (*holdfastv1.RotationResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	id, err := cluster.NewPoolID(r.Pool)
	if err != nil {
		return nil, api.Invalid("%q is not the id of a pool", r.Pool)
	}
	rotation, found := s.answers.server.Rotation(id)
	response := &holdfastv1.RotationResponse{Found: found, Known: rotation.Known}
	for _, n := range rotation.Nodes {
		next, has := rotation.Next[n.LNN]
		delete(rotation.Next, n.LNN)
		response.Nodes = append(response.Nodes, &holdfastv1.RotationNode{Lnn: int32(n.LNN), Ahead: n.Ahead, Recent: n.Recent, Taking: true, Next: next, HasNext: has})
	}
	for lnn, next := range rotation.Next {
		response.Nodes = append(response.Nodes, &holdfastv1.RotationNode{Lnn: int32(lnn), Next: next, HasNext: true})
	}
	return response, nil
}
