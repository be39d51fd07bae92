package broker

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// Permit is what a grant allows for one launch. Whoever makes one has asked the grants.
type Permit struct {
	Grant     string // its name
	Target    token.Target
	Account   string // of a tunnel none
	May       token.Channels
	Proof     token.Proof
	Limit     time.Duration // of the session; 0: the gateway's own
	Validity  time.Duration // of the token
	ClientKey [32]byte      // that the client has to prove; zero: none
}

// sign makes the token of a launch, for the gateway that was chosen and for no other. Gateways that are not Holdfast's own take none.
func (b *Broker) sign(r *Request, result *Result) error {
	own := result.Answer.Gateway.Own
	if own == nil || b.options.Sign == nil {
		return nil
	}
	p, now := r.Permit, time.Now()
	grant := token.Grant{
		Gateway: own.Name, Who: r.Who, Target: p.Target, Account: p.Account, May: p.May, Proof: p.Proof, Issued: now, Expires: now.Add(p.Validity), SessionLimit: p.Limit,
		ClientKey: p.ClientKey, Rule: "network " + result.Answer.Rule.Network + ", grant " + p.Grant,
	}
	if result.Answer.Known {
		grant.Fitness = fmt.Sprintf("%.4g", result.Answer.Fitness)
	}
	_, _ = rand.Read(grant.ID[:]) // it never fails
	text, err := b.options.Sign(grant)
	if err != nil {
		return refused("making the session token for %s: %v; nothing can be opened with this launch", result.Answer.Ref(), err)
	}
	result.Token, result.token = text, grant.ID
	b.measure.tokens.Inc()
	return nil
}

// Deny writes down that somebody asked for what no grant allows. It chooses and counts nothing.
func (b *Broker) Deny(r Request, why string) {
	if r.clean() != nil || r.DryRun {
		return
	}
	b.measure.denied.Inc()
	e := b.entry(&r, "", "denied")
	e.Says = why
	b.audit.add(&e)
	b.told(&e)
}
