package sshgate

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// How long a certificate for a target is good: it is only needed to log in. It begins a little before now, for clocks that differ.
const (
	certificateLife   = 3 * time.Minute
	certificateLeeway = time.Minute
)

// certify makes a key that lives for one login, and a certificate for it.
func certify(ca ssh.Signer, grant token.Grant, extensions map[string]string, session, gateway string, now time.Time) (ssh.Signer, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	var serial [8]byte
	if _, err := rand.Read(serial[:]); err != nil {
		return nil, err
	}
	certificate := &ssh.Certificate{
		Key: key, CertType: ssh.UserCert, Serial: binary.BigEndian.Uint64(serial[:]),
		// The target's sshd writes this into its own log, so that both ends name the same session.
		KeyId:           fmt.Sprintf("%s via %s session %s", grant.Who, gateway, session),
		ValidPrincipals: []string{grant.Account},
		ValidAfter:      uint64(now.Add(-certificateLeeway).Unix()), ValidBefore: uint64(now.Add(certificateLife).Unix()),
		Permissions: ssh.Permissions{Extensions: extensions},
	}
	if err := certificate.SignCert(rand.Reader, ca); err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		return nil, err
	}
	return ssh.NewCertSigner(certificate, signer)
}

// unreachable is why the target could not be used. Reason is for the counter.
type unreachable struct {
	reason string
	err    error
}

func (u *unreachable) Error() string { return u.err.Error() }
func (u *unreachable) Unwrap() error { return u.err }

// login connects to the target and logs in. The agent is asked for only where the grant says so.
func (g *Gate) login(ctx context.Context, grant token.Grant, r rules, session string, openAgent func(context.Context) (ssh.Channel, error)) (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	fail := func(reason string, err error) (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
		return nil, nil, nil, &unreachable{reason, err}
	}
	address := grant.Target.String()
	check, algorithmsOfHost, err := g.options.Targets.For(address)
	if err != nil {
		return fail("host_key", err)
	}
	ctx, cancel := context.WithTimeout(ctx, g.options.Limits.Dial)
	defer cancel()
	method, close, err := g.proof(ctx, grant, r, session, openAgent)
	if err != nil {
		return fail("login", err)
	}
	defer close()
	conn, err := g.options.Dial(ctx, "tcp", address)
	if err != nil {
		return fail("reach", fmt.Errorf("the target %s cannot be reached from the gateway %s: %w", address, g.options.Name, err))
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // what cannot be set fails with the first read
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	target, channels, requests, err := ssh.NewClientConn(promptly(conn), address, &ssh.ClientConfig{
		Config: algorithms(), User: grant.Account, Auth: []ssh.AuthMethod{method}, HostKeyCallback: check, HostKeyAlgorithms: algorithmsOfHost, ClientVersion: "SSH-2.0-Holdfast",
	})
	stop()
	if err != nil {
		_ = conn.Close()
		return fail(loginFailed(err, grant, address))
	}
	_ = conn.SetDeadline(time.Time{})
	return target, channels, requests, nil
}

// loginFailed tells a host key that is not believed from a login that is not accepted.
func loginFailed(err error, grant token.Grant, address string) (string, error) {
	var host *hostKeyError
	var network net.Error
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &negotiation):
		return "host_key", fmt.Errorf("the target %s and the gateway have no way in common to prove or encrypt: %w. On record for it may be a certificate or a kind of key that it no longer has", address, said{err})
	case errors.As(err, &host):
		return "host_key", host
	case errors.As(err, &network) && network.Timeout():
		return "reach", fmt.Errorf("the target %s accepts connections, but does not answer in SSH in time", address)
	}
	remedy := "the target must trust the fleet's SSH user CA (TrustedUserCAKeys in its sshd_config), and the account must exist there"
	if grant.Proof == token.ForwardedAgent {
		remedy = "this access logs in with your own agent: a key in it must be in the account's authorized_keys"
	}
	return "login", fmt.Errorf("the target %s does not let the account %s in: %w; %s", address, grant.Account, said{err}, remedy)
}

// said is an error whose text is the other side's, or has it in it: cut, and without what a terminal would obey.
type said struct{ err error }

// maxSaid bounds what is passed on of it, in characters. SSH allows a quarter of a MiB.
const maxSaid = 500

func (s said) Error() string { return printable(fmt.Sprintf("%.*s", maxSaid, s.err.Error())) }
func (s said) Unwrap() error { return s.err }

// proof is how the gateway logs in. Close is called after the login.
func (g *Gate) proof(ctx context.Context, grant token.Grant, r rules, session string, openAgent func(context.Context) (ssh.Channel, error)) (method ssh.AuthMethod, close func(), err error) {
	close = func() {}
	if grant.Proof == token.ForwardedAgent {
		channel, err := openAgent(ctx)
		if errors.Is(err, errUnanswered) {
			return nil, close, fmt.Errorf("this access logs in at the target with your own agent, and your client did not answer within %v whether it forwards one", g.options.Limits.Dial)
		}
		if err != nil {
			return nil, close, errors.New("this access logs in at the target with your own agent, and your client forwards none: connect with ssh -A")
		}
		return ssh.PublicKeysCallback(agent.NewClient(channel).Signers), func() { _ = channel.Close() }, nil
	}
	if g.options.UserCA == nil {
		return nil, close, errors.New("this gateway has no SSH user CA, so that it cannot log in with a certificate; an administrator sets user-ca in its configuration")
	}
	signer, err := certify(g.options.UserCA, grant, r.certificate(), session, g.options.Name, g.now())
	if err != nil {
		return nil, close, err
	}
	return ssh.PublicKeys(signer), close, nil
}
