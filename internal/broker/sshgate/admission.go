package sshgate

import (
	"crypto/sha256"
	"errors"
	"net"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/recording"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// attempt is one client on its way in. Its methods are called one after another, by the handshake.
type attempt struct {
	gate    *Gate
	client  net.Addr
	refused string      // the reason that the user was told; he is told one
	session *connection // once admitted
}

// configure puts the attempt behind the questions of the handshake. A token by itself is enough: the client's first try, which nearly every client makes
// with the method "none", succeeds; one that begins with a key instead may prove any. A token that is bound to a key needs the proof of that key.
func (a *attempt) configure(config *ssh.ServerConfig) {
	config.NoClientAuth = true
	config.NoClientAuthCallback = func(meta ssh.ConnMetadata) (*ssh.Permissions, error) {
		grant, err := a.read(meta)
		if err != nil {
			return nil, a.refuse(grant, err)
		}
		if grant.Bound() {
			return nil, errors.New("the token is bound to a key")
		}
		return a.admit(grant)
	}
	config.PublicKeyCallback = func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		grant, err := a.read(meta)
		if err != nil {
			return nil, a.refuse(grant, err)
		}
		if a.refused != "" {
			return nil, errors.New("the user was told why")
		}
		if grant.Bound() && KeyHash(key) != grant.ClientKey {
			return nil, a.refuse(grant, token.Unproved())
		}
		return &ssh.Permissions{}, nil
	}
	config.VerifiedPublicKeyCallback = func(meta ssh.ConnMetadata, _ ssh.PublicKey, _ *ssh.Permissions, _ string) (*ssh.Permissions, error) {
		grant, err := a.read(meta)
		if err != nil {
			return nil, a.refuse(grant, err)
		}
		return a.admit(grant)
	}
}

// KeyHash is how a token names the key that it is bound to (token.Grant.ClientKey). A certificate counts as the key in it.
func KeyHash(key ssh.PublicKey) [32]byte {
	if certificate, ok := key.(*ssh.Certificate); ok {
		key = certificate.Key
	}
	return sha256.Sum256(key.Marshal())
}

// read takes the grant from the user name.
func (a *attempt) read(meta ssh.ConnMetadata) (token.Grant, error) {
	if !token.Looks(meta.User()) {
		return token.Grant{}, &barred{"no_token", "This is the session gateway " + a.gate.options.Name + ". It takes a session token as the user name; a broker makes one (holdfast broker launch)."}
	}
	grant, err := token.Parse(meta.User(), a.gate.options.Brokers())
	if err != nil {
		return token.Grant{}, err
	}
	return grant, grant.Check(a.gate.options.Name, a.gate.now())
}

// admit begins the session, or says why not. The order matters: what others can mend (a full disk) is asked before the token is used up.
func (a *attempt) admit(grant token.Grant) (*ssh.Permissions, error) {
	g := a.gate
	if a.session != nil {
		return nil, errors.New("already admitted")
	}
	if grant.May &= g.options.May; grant.May == 0 {
		return nil, a.refuse(grant, &barred{"policy", "The session token allows nothing that the gateway " + g.options.Name + " allows as well. Ask for other access, or use another gateway."})
	}
	if g.options.Barred != "" {
		return nil, a.refuse(grant, &barred{"role", g.options.Barred})
	}
	if err := g.options.Recorder.Room(); err != nil {
		reason := "recorder"
		if errors.Is(err, recording.ErrDiskFull) {
			reason = "disk_full"
		}
		return nil, a.refuse(grant, &barred{reason, "The gateway " + g.options.Name + " begins no session: " + err.Error() + "."})
	}
	session, err := g.newSession(grant, a.client)
	if err != nil {
		return nil, a.refuse(grant, err)
	}
	if bar := g.begin(session); bar != nil {
		g.unmake(session)
		return nil, a.refuse(grant, bar)
	}
	a.session = session
	g.counts.started.Inc()
	return &ssh.Permissions{}, nil
}

// begin makes a session lasting, before it does anything: the audit log has it, and then the list of used tokens has its token. What does not come so far was
// no session, and its token stays good. Until then this process holds the token as used, so that no second connection comes in by it meanwhile.
func (g *Gate) begin(session *connection) *barred {
	if err := g.options.Auditor.Write(session.record(audit.Started)); err != nil {
		g.counts.auditFailed.Inc()
		return &barred{"audit", "The gateway " + g.options.Name + " begins no session, since it cannot audit it: " + err.Error() + ". The token stays good."}
	}
	if g.options.Ledger == nil {
		return nil
	}
	if err := g.options.Ledger.Note(session.grant.ID, session.grant.RememberUntil()); err != nil {
		session.become("it did not begin: " + err.Error())
		session.audit(audit.Ended)
		return &barred{"ledger", "The gateway " + g.options.Name + " begins no session: " + err.Error() + ". The token stays good."}
	}
	return nil
}

// abandon ends a session that was admitted and whose handshake then failed.
func (a *attempt) abandon() {
	if a.session != nil {
		a.session.over("the client went away during the handshake")
	}
}

// refuse tells the user why, once, and writes it down.
func (a *attempt) refuse(grant token.Grant, err error) error {
	if a.refused != "" {
		return err
	}
	reason := "internal"
	var refused *token.Refused
	var bar *barred
	switch {
	case errors.As(err, &refused):
		reason = "token_" + refused.Why.String()
	case errors.As(err, &bar):
		reason = bar.reason
	}
	a.refused = reason
	a.gate.counts.connectionsRefused.WithLabelValues(reason).Inc()
	// Only what a broker has signed is worth an audit record, and only brokers can make it many: strangers must not fill the disk.
	if grant.ID != (token.ID{}) {
		failed := a.gate.options.Auditor.Write(audit.Record{
			Time: a.gate.now(), Event: audit.Refused, Gateway: a.gate.options.Name, Client: a.client.String(), Outcome: reason,
			Who: grant.Who, Target: grant.Target.String(), Account: grant.Account, Token: grant.ID.String(), Rule: grant.Rule, Fitness: grant.Fitness,
		})
		if failed != nil {
			a.gate.counts.auditFailed.Inc()
			a.gate.options.Logger.Error("a refused SSH connection is not in the audit log", "error", failed)
		}
	}
	a.gate.options.Logger.Info("an SSH connection was refused", "client", a.client, "reason", reason, "error", err)
	return &ssh.BannerError{Err: err, Message: "holdfast: " + err.Error() + "\r\n"}
}
