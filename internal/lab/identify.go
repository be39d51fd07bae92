package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/holdfast/holdfast/internal/identity"
)

// identify makes the cluster's authority, and gives every node its certificate and the cluster's configuration.
func (d Directory) identify(plan *Plan) error {
	authority := d.path(identityDir)
	if err := identity.Init(authority, plan.Name); err != nil {
		return fmt.Errorf("making the lab's certificate authority: %w", err)
	}
	for _, member := range plan.Members {
		if member.Kind != KindNode {
			continue
		}
		directory := d.node(member.Name)
		var addresses []netip.Addr
		for _, iface := range member.Interfaces {
			for _, address := range iface.Addresses {
				addresses = append(addresses, address.Addr())
			}
		}
		addresses = append(addresses, netip.MustParseAddr("127.0.0.1"))
		names := []string{member.Name, "localhost"}
		if err := identity.Issue(authority, d.identity(member.Name), member.Name, addresses, names); err != nil {
			return fmt.Errorf("making the certificate of %s: %w", member.Name, err)
		}
		if err := os.WriteFile(filepath.Join(directory, "cluster.yaml"), []byte(plan.Cluster), 0o600); err != nil {
			return fmt.Errorf("writing the configuration of %s: %w", member.Name, err)
		}
	}
	return nil
}
