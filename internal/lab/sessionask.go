package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// What is asked of a broker, and what it answers, in JSON (proto/holdfast/v1/broker.proto): of each message what the lab needs.

type launchRequest struct {
	Target   string   `json:"target,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
	Account  string   `json:"account,omitempty"`
	Tried    []string `json:"tried,omitempty"`
	Launch   string   `json:"launch,omitempty"`
}

type launchAnswer struct {
	Launch          string         `json:"launch"`
	Gateway         *pickedGateway `json:"gateway"`
	LeftOut         []leftOut      `json:"leftOut"`
	Source          string         `json:"source"`
	AgeMS           int64          `json:"ageMs,string"`
	Refusal         *launchRefusal `json:"refusal"`
	Token           string         `json:"token"`
	GatewayHostKeys []string       `json:"gatewayHostKeys"`
}

type pickedGateway struct {
	Gateway   string   `json:"gateway"`
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	Port      int      `json:"port"`
}

type leftOut struct {
	Gateway string `json:"gateway"`
	Why     string `json:"why"`
}

type launchRefusal struct {
	Code   string `json:"code"`
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

type outcomeRequest struct {
	Request  launchRequest `json:"request"`
	Gateway  string        `json:"gateway"`
	Reached  bool          `json:"reached"`
	Evidence string        `json:"evidence,omitempty"`
}

type outcomeAnswer struct {
	Next *launchAnswer `json:"next"`
}

// brokerPlace is where a broker is asked.
type brokerPlace struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Port    int    `json:"port"`
}

// askers ask brokers, over one connection to each that is kept. Safe for concurrent use.
type askers struct {
	mu   sync.Mutex
	each map[string]*http.Client
}

// of is the one for a broker.
func (a *askers) of(o launchOrder, broker brokerPlace) *http.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.each == nil {
		a.each = make(map[string]*http.Client)
	}
	if a.each[broker.Name] == nil {
		a.each[broker.Name] = &http.Client{Transport: &http.Transport{
			MaxConnsPerHost: launchWorkers,
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return o.dialBroker(broker) },
		}}
	}
	return a.each[broker.Name]
}

// brokerPatience is how long a user waits for a broker before asking another.
const brokerPatience = 1500 * time.Millisecond

// maxBrokerAnswer bounds an answer, in bytes.
const maxBrokerAnswer = 1 << 20

// askBroker makes one call.
func askBroker(ctx context.Context, client *http.Client, b brokerPlace, method string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://holdfast/holdfast.v1.Broker/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	call.Header.Set("Content-Type", "application/json")
	response, err := client.Do(call)
	if err != nil {
		return fmt.Errorf("asking the broker of %s: %w", b.Name, err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, maxBrokerAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(string(said))
	}
	if err == nil {
		err = json.Unmarshal(said, answer)
	}
	if err != nil {
		return fmt.Errorf("asking the broker of %s: %w", b.Name, err)
	}
	return nil
}
