package lab

import (
	"context"
	"encoding/json"
	"fmt"
)

// This file holds everything that the lab reads from the output of the holdfast command.

// nodeReport is what the lab needs of `holdfast status`.
type nodeReport struct {
	Serving          bool   `json:"serving"`
	Reason           string `json:"not_serving_because"`
	FailureDetection struct {
		Text string `json:"text"` // how deaths are noticed, in one sentence
	} `json:"failure_detection"`
	Nodes []struct {
		Name  string `json:"name"`
		State string `json:"state"` // unknown, up, unfit, draining or down
	} `json:"nodes"`
}

// up reports whether the node that was asked takes another for up.
func (r nodeReport) up(name string) bool {
	for _, node := range r.Nodes {
		if node.Name == name {
			return node.State == "up"
		}
	}
	return false
}

func parseNodeReport(data []byte) (nodeReport, error) {
	var r nodeReport
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading `holdfast status --output json`: %w", err)
	}
	return r, nil
}

// The kinds of addresses that move.
const (
	kindDynamic = "dynamic"
	kindService = "service"
)

// heldAddress is one line of `holdfast network interfaces list`.
type heldAddress struct {
	Address string `json:"address"`
	Kind    string `json:"kind"` // dynamic, static or service
	Node    string `json:"node"` // empty: nobody
	Next    string `json:"next_node"`
	State   string `json:"state"` // unassigned, held, moving or orphaned
}

func parseHeld(data []byte) ([]heldAddress, error) {
	var list struct {
		Addresses []heldAddress `json:"addresses"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading `holdfast network interfaces list --output json`: %w", err)
	}
	return list.Addresses, nil
}

// held asks one node who holds what.
func held(ctx context.Context, dir Directory, node string) ([]heldAddress, error) {
	out, err := dir.Output(ctx, node, "holdfast", "network", "interfaces", "list", "--output", "json")
	if err != nil {
		return nil, err
	}
	return parseHeld(out)
}

// askStatus asks one node for its status.
func askStatus(ctx context.Context, dir Directory, node string) (nodeReport, error) {
	out, err := dir.Output(ctx, node, "holdfast", "status", "--output", "json")
	if err != nil {
		return nodeReport{}, err
	}
	return parseNodeReport(out)
}

// fleetReport is what the lab needs of `holdfast broker fleets`.
type fleetReport struct {
	State  string `json:"state"` // unheard, live, faltering or lost
	Source string `json:"source"`
	AgeMS  int64  `json:"age_ms"`
	Up     int    `json:"up"`
}

func parseFleets(data []byte) (fleetReport, error) {
	var list struct {
		Fleets []fleetReport `json:"fleets"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return fleetReport{}, fmt.Errorf("reading `holdfast broker fleets --output json`: %w", err)
	}
	if len(list.Fleets) != 1 {
		return fleetReport{}, fmt.Errorf("%d fleets are linked, and the scenario has linked one", len(list.Fleets))
	}
	return list.Fleets[0], nil
}

// parseGateways says of each gateway whether it takes sessions.
func parseGateways(data []byte) (map[string]bool, error) {
	var list struct {
		Gateways []struct {
			Key   string `json:"key"`
			Takes bool   `json:"takes"`
		} `json:"gateways"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading `holdfast broker gateways --output json`: %w", err)
	}
	seen := make(map[string]bool)
	for _, gateway := range list.Gateways {
		seen[gateway.Key] = gateway.Takes
	}
	return seen, nil
}
