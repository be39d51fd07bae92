package agent

import (
	"context"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker"
	"github.com/holdfast/holdfast/internal/broker/grants"
	"github.com/holdfast/holdfast/internal/broker/sshgate"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// caller is who asks, by the name by which grants know him.
type caller struct {
	name   string
	others bool // he may ask for others
}

// asking finds out who asks: whoever proved a key, or the user of this machine as the kernel vouches for him.
func (r *brokerRoom) asking(ctx context.Context) caller {
	proved, remote := api.Proved(ctx)
	if !remote {
		credentials, ok := api.Caller(ctx)
		if !ok {
			return caller{}
		}
		a := caller{name: localName(credentials.UID), others: credentials.UID == 0}
		a.others = a.others || r.trusts(a.name)
		return a
	}
	return caller{name: proved.Name, others: !proved.Certified && r.trusts(proved.Name)}
}

func (r *brokerRoom) trusts(name string) bool {
	s := r.settings.Load()
	return s != nil && name != "" && slices.Contains(s.Trusted, name)
}

// localName is a user's name on this machine; one without a name is named by his number.
func localName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if found, err := user.LookupId(number); err == nil {
		return found.Username
	}
	return "uid:" + number
}

// wantsToken tells whether a session token is asked for, and not only where a gateway is.
func wantsToken(r *holdfastv1.LaunchRequest) bool {
	return r != nil && (r.Account != "" || r.Port != 0 || len(r.Channels) > 0 || r.ClientKey != "")
}

// admitted reads a request and finds out whether whoever asks may have what it asks for.
func (s brokerService) admitted(ctx context.Context, b *broker.Broker, r *holdfastv1.LaunchRequest) (broker.Request, error) {
	request, err := launchOf(ctx, r)
	if err != nil {
		return request, api.Invalid("%v", err)
	}
	if !s.requesters && !wantsToken(r) && s.settings.Load() == nil {
		return request, nil // a broker without settings of its own only says where gateways are
	}
	who := s.asking(ctx)
	if request.Who == "" {
		request.Who = who.name
	}
	if request.Who != who.name && !who.others {
		err := api.Forbidden("%s may open sessions as %s and not as %.60q: leave the user out, or have 'trusted' in the broker's settings name %s", who.name, who.name, request.Who, who.name)
		request.Who = who.name
		b.Deny(request, api.Text(err))
		return request, err
	}
	if !s.requesters && !wantsToken(r) {
		return request, nil
	}
	request.Stranger = s.requesters && !who.others
	if request.Stranger && r.Address != "" && !strings.EqualFold(r.Address, r.Target) {
		return request, api.Invalid("the address of a target is taken from callers whom the broker's settings trust: name the target by the address itself")
	}
	decision, err := s.decide(ctx, r, &request)
	if err != nil {
		return request, err
	}
	if decision.Grant == nil {
		b.Deny(request, decision.Reason)
		return request, api.Forbidden("%s", decision.Reason)
	}
	return request, nil
}

// decide asks the grants, and notes in the request what they allow.
func (r *brokerRoom) decide(ctx context.Context, m *holdfastv1.LaunchRequest, request *broker.Request) (grants.Decision, error) {
	s := r.settings.Load()
	if s == nil {
		return grants.Decision{}, api.NotNow("this broker makes no session tokens: its settings (%s) are not there or cannot be used; 'holdfast problems' says which", r.options.BrokerFile)
	}
	if request.Who == "" {
		request.Who = r.asking(ctx).name
	}
	wish, clientKey, err := wishOf(m, request)
	if err != nil {
		return grants.Decision{}, api.Invalid("%v", err)
	}
	decision := grants.Decide(s.Grants, wish)
	request.Permit = &broker.Permit{Target: wish.Target, Account: wish.Account, May: wish.Want, ClientKey: clientKey, Validity: s.Validity}
	if g := decision.Grant; g != nil {
		p := request.Permit
		p.Grant, p.May, p.Limit = g.Name, decision.May, g.Limit
		if wish.Protocol == grants.SSH {
			p.Proof = g.Proof
		}
	}
	return decision, nil
}

// wishOf is what a request asks of the grants.
func wishOf(m *holdfastv1.LaunchRequest, request *broker.Request) (wish grants.Request, clientKey [32]byte, err error) {
	wish = grants.Request{Who: request.Who, Account: m.Account, Protocol: strings.ToLower(m.Protocol), Now: time.Now()}
	if wish.Protocol == "" {
		wish.Protocol = grants.SSH
	}
	if wish.Protocol != grants.SSH && wish.Protocol != grants.TCP {
		return wish, clientKey, fmt.Errorf("session tokens are for the protocols ssh and tcp, not %.40q: whatever else goes through a gateway is tcp", m.Protocol)
	}
	if wish.Target.Host, err = grants.CleanHost(request.Target); err != nil {
		return wish, clientKey, err
	}
	switch {
	case m.Port > 65535, m.Port == 0 && wish.Protocol == grants.TCP:
		return wish, clientKey, fmt.Errorf("%d is no port of a target; name the port of its service", m.Port)
	case m.Port == 0:
		m.Port = 22
	}
	wish.Target.Port = uint16(m.Port)
	if len(m.Account) > token.MaxName || strings.ContainsFunc(m.Account, func(c rune) bool { return c < ' ' || c == 0x7f }) || wish.Protocol == grants.SSH && m.Account == "" {
		return wish, clientKey, fmt.Errorf("the account %.40q is not one: name the account on the target, with at most %d printable characters", m.Account, token.MaxName)
	}
	if wish.Want, err = token.ParseChannels(m.Channels); err != nil {
		return wish, clientKey, err
	}
	if m.ClientKey != "" {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.ClientKey))
		if err != nil || len(m.ClientKey) > maxClientKey {
			return wish, clientKey, fmt.Errorf("the client's key is no public key: write it as ssh-keygen does (ssh-ed25519 AAAA...)")
		}
		clientKey = sshgate.KeyHash(key)
	}
	return wish, clientKey, nil
}

// maxClientKey bounds a client's key as text.
const maxClientKey = 16 << 10

// grantedMessage adds to an answer what the grant allows, and the token.
func grantedMessage(out *holdfastv1.LaunchResponse, request *broker.Request, result *broker.Result) *holdfastv1.LaunchResponse {
	out.Token = result.Token
	if p := request.Permit; p != nil && result.Refusal == nil {
		out.Granted = &holdfastv1.GrantedSession{
			Grant: p.Grant, Who: request.Who, Account: p.Account, Target: p.Target.String(), Channels: p.May.Names(), ForwardedAgent: p.Proof == token.ForwardedAgent,
		}
	}
	return out
}

// sign makes the text of a token, by the key that the settings have now.
func (r *brokerRoom) sign(g token.Grant) (string, error) {
	s := r.settings.Load()
	if s == nil {
		return "", fmt.Errorf("the broker's settings cannot be used any more")
	}
	return token.Sign(g, s.SigningKey)
}
