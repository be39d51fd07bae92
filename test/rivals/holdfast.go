package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// holdfastSystem is the product itself, with the heartbeat settings of its cluster.
type holdfastSystem struct {
	holdfast               string
	intervalMS, multiplier int
}

func (h holdfastSystem) about() about {
	return about{
		name:     fmt.Sprintf("holdfast %d ms", h.intervalMS),
		settings: fmt.Sprintf("heartbeat-interval-ms: %d, heartbeat-multiplier: %d", h.intervalMS, h.multiplier),
		program:  h.holdfast, version: []string{h.holdfast, "version"},
		processes: []string{"holdfast", "agent", "guard"},
		period:    time.Second, // of the node's look at the store; its heartbeats are shorter
	}
}

func (h holdfastSystem) files(string) (file string, more []string, err error) {
	var members []string
	for i := range nodes {
		members = append(members, fmt.Sprintf(`"%d:eth0"`, i+1))
	}
	all := addresses()
	return fmt.Sprintf(`lab: {nodes: %d, clients: 1, resolver: none}
cluster:
  cluster:
    name: lab
    heartbeat-interval-ms: %d
    heartbeat-multiplier: %d
  groupnets:
    - name: groupnet0
      subnets:
        - name: subnet0
          cidr: 10.10.0.0/24
          sc-service-name: ssip.lab
          sc-service-addrs: [10.10.0.4-10.10.0.6]
          pools:
            - name: pool0
              alloc-method: dynamic
              ranges: [%s-%s]
              ifaces: [%s]
              sc-dns-zone: cluster.lab
              rebalance-policy: manual
`, len(nodes), h.intervalMS, h.multiplier, all[0], all[len(all)-1], strings.Join(members, ", ")), nil, nil
}

func (h holdfastSystem) healthy(ctx context.Context, l *lab) error {
	for _, node := range nodes {
		out, err := l.in(ctx, node, "holdfast", "status", "--output", "json")
		if err != nil {
			return err
		}
		var status struct {
			Serving bool
			Reason  string `json:"not_serving_because"`
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return fmt.Errorf("reading the status of %s: %w", node, err)
		}
		if !status.Serving {
			return fmt.Errorf("%s does not serve: %s", node, status.Reason)
		}
	}
	return nil
}

func (h holdfastSystem) even(ctx context.Context, l *lab) error {
	_, err := l.in(ctx, nodes[0], "holdfast", "network", "pools", "rebalance-ips", "groupnet0.subnet0.pool0")
	return err
}

func (h holdfastSystem) stop(ctx context.Context, l *lab) error {
	return l.do(ctx, "stop", "--agent", victim)
}

func (h holdfastSystem) move(ctx context.Context, l *lab, _ []string) error {
	_, err := l.in(ctx, nodes[0], "holdfast", "node", "drain", victim)
	return err
}

func (h holdfastSystem) back(ctx context.Context, l *lab, _ []string) error {
	_, err := l.in(ctx, nodes[0], "holdfast", "node", "undrain", victim)
	return err
}

// connected waits for as long as the owner may take to tell the successor (0.2 s), and as long again.
func (h holdfastSystem) connected(ctx context.Context, _ *lab, _, _ string) error {
	return pause(ctx, 400*time.Millisecond)
}
