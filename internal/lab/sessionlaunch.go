package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// launchOrder is what `lab launches` is told to do: to ask brokers for sessions, and to open those that it gets.
type launchOrder struct {
	Count   int           `json:"count"`
	Brokers []brokerPlace `json:"brokers"` // the first launch asks the first one first, the second the second, and so on
	Target  string        `json:"target"`
	Account string        `json:"account"`
	Who     string        `json:"who"`
	Key     string        `json:"key"`         // the user's private key
	Known   string        `json:"broker_keys"` // file with the brokers' host keys
	Retry   bool          `json:"retry"`       // take the next best where a gateway is not reached, as clients do
	Work    string        `json:"work"`        // a directory for what ssh has to read
}

// launched is what became of one launch.
type launched struct {
	Broker  string         `json:"broker"`  // that answered; empty: none did
	Silent  []string       `json:"silent"`  // brokers that were asked before and did not answer
	Gateway string         `json:"gateway"` // that was handed out last; empty: the launch was refused
	Missed  []string       `json:"missed"`  // gateways that were handed out and did not take the session
	Host    string         `json:"host"`    // where the command ran, as the target says
	Through string         `json:"through"` // the address that the target was reached from
	Source  string         `json:"source"`
	AgeMS   int64          `json:"age_ms"`
	LeftOut []leftOut      `json:"left_out"`
	Refusal *launchRefusal `json:"refusal"`
	Error   string         `json:"error"` // why no session was opened though there was a gateway
}

// launchWave is how many users come at the same moment, and launchWorkers how many of their sessions are under way at once.
const (
	launchWave    = 24
	launchWorkers = 4
)

// sessionProof is what is run on the target: where it is, and from where it was reached.
const sessionProof = `hostname; echo "${SSH_CONNECTION%% *}"`

// launchesCommand is the user of scenarios: for each order, which is a line of JSON, it prints what became of the launches.
func launchesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "launches", Short: "Open sessions as brokers say, and tell what became of them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var brokers askers
			return answerLines(c.InOrStdin(), c.OutOrStdout(), func(line string) any {
				var order launchOrder
				if line == "" || json.Unmarshal([]byte(line), &order) != nil {
					return []launched{}
				}
				return order.run(c.Context(), &brokers)
			})
		},
	}
}

// run does the launches of an order, one wave of users after another.
func (o launchOrder) run(ctx context.Context, brokers *askers) []launched {
	all := make([]launched, o.Count)
	for begin := 0; begin < o.Count; begin += launchWave {
		wave := all[begin:min(begin+launchWave, o.Count)]
		answers := make([]asked, len(wave))
		atOnce(len(wave), func(i int) { answers[i] = o.ask(ctx, brokers, begin+i, &wave[i]) })
		atOnce(len(wave), func(i int) { o.open(ctx, answers[i], &wave[i]) })
	}
	return all
}

// atOnce does something for each number below a count, some of them at a time.
func atOnce(count int, do func(int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(launchWorkers, count) {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	workers.Wait()
}

// asked is what a broker has answered.
type asked struct {
	broker  brokerPlace
	client  *http.Client
	request launchRequest
	answer  launchAnswer
}

// ask asks for a session, one broker after another until one answers.
func (o launchOrder) ask(ctx context.Context, brokers *askers, number int, l *launched) (a asked) {
	a.request = launchRequest{Target: o.Target, Protocol: "ssh", Account: o.Account}
	for i := range o.Brokers {
		a.broker = o.Brokers[(number+i)%len(o.Brokers)]
		a.client = brokers.of(o, a.broker)
		err := askBroker(ctx, a.client, a.broker, "Launch", a.request, &a.answer)
		if err == nil {
			l.Broker, l.Error = a.broker.Name, ""
			break
		}
		l.Silent, l.Error = append(l.Silent, a.broker.Name), err.Error()
	}
	return a
}

// open opens the session at the gateway of an answer, or at those that come next.
func (o launchOrder) open(ctx context.Context, a asked, l *launched) {
	request, answer := a.request, a.answer
	for l.Broker != "" {
		l.Gateway, l.Source, l.AgeMS, l.LeftOut, l.Refusal = "", answer.Source, answer.AgeMS, answer.LeftOut, answer.Refusal
		if answer.Refusal != nil || answer.Gateway == nil {
			return
		}
		l.Gateway = answer.Gateway.Gateway
		outcome := outcomeRequest{Request: request, Gateway: l.Gateway, Reached: true}
		outcome.Request.Launch = answer.Launch
		var err error
		if l.Host, l.Through, err = o.session(ctx, answer); err != nil {
			l.Error, outcome.Reached, outcome.Evidence = err.Error(), false, err.Error()
			l.Missed = append(l.Missed, l.Gateway)
		} else {
			l.Error = ""
		}
		if !o.Retry && err != nil {
			return
		}
		var next outcomeAnswer
		told := askBroker(ctx, a.client, a.broker, "Outcome", outcome, &next)
		if err == nil || told != nil || next.Next == nil {
			return
		}
		request.Launch, request.Tried = answer.Launch, append(request.Tried, l.Gateway)
		answer = *next.Next
	}
}

// sessionPatience bounds one session, and gatewayPatience how long ssh tries to reach its gateway, in seconds.
const (
	sessionPatience = 15 * time.Second
	gatewayPatience = 2
)

// session opens one with OpenSSH's ssh, and returns what the target said.
func (o launchOrder) session(ctx context.Context, answer launchAnswer) (host, through string, err error) {
	ctx, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	gateway := answer.Gateway
	known, err := o.knownHosts(answer)
	if err != nil {
		return "", "", err
	}
	defer os.Remove(known)
	argv := append(sshOptions(known, o.Key), "-p", fmt.Sprint(gateway.Port), answer.Token+"@"+gateway.Addresses[0], sessionProof)
	command := exec.CommandContext(ctx, "ssh", argv...)
	command.WaitDelay = time.Second
	out, err := command.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		said := strings.TrimSpace(string(failed.Stderr))
		return "", "", errors.New(firstOf(said[strings.LastIndexByte(said, '\n')+1:], err.Error()))
	}
	if err != nil {
		return "", "", err
	}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for _, into := range []*string{&host, &through} {
		if !lines.Scan() {
			return "", "", io.ErrUnexpectedEOF
		}
		*into = lines.Text()
	}
	return host, through, nil
}

// sshOptions have ssh believe the host keys of a file and nothing else, and ask nobody.
func sshOptions(known, key string) []string {
	return []string{
		"-F", "none", "-i", key, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile=" + known, "-o", "GlobalKnownHostsFile=none",
		"-o", "StrictHostKeyChecking=yes", "-o", fmt.Sprintf("ConnectTimeout=%d", gatewayPatience), "-o", "LogLevel=ERROR",
	}
}

// knownHosts writes the host keys that the broker says the gateway has to a file for ssh.
func (o launchOrder) knownHosts(answer launchAnswer) (string, error) {
	file, err := os.CreateTemp(o.Work, "known-")
	if err != nil {
		return "", err
	}
	defer file.Close()
	var text strings.Builder
	for _, key := range answer.GatewayHostKeys {
		fmt.Fprintf(&text, "[%s]:%d %s\n", answer.Gateway.Addresses[0], answer.Gateway.Port, key)
	}
	_, err = file.WriteString(text.String())
	return filepath.Clean(file.Name()), err
}
