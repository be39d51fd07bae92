package lab

import (
	"encoding/json"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/identity"
	"github.com/holdfast/holdfast/internal/store"
)

// Where an agent's member of the store listens for agents, and where what is on record about addresses lies (internal/agent).
const storePort = 7701

var recordPrefixes = []string{"pool/", "service/"}

// recordsCommand reads the store as an agent does, beside all agents: what they have written shows, and what they think does not.
func recordsCommand() *cobra.Command {
	var directory, clusterName, member string
	command := &cobra.Command{
		Use: "records", Short: "Print at which revision the store last wrote each record about addresses", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			id, err := identity.Load(directory)
			if err != nil {
				return err
			}
			client, err := store.Open(store.Options{Endpoints: []string{net.JoinHostPort(member, strconv.Itoa(storePort))}, TLS: id.ClientTLS(), Cluster: clusterName})
			if err != nil {
				return err
			}
			defer client.Close()
			revisions := map[string]int64{}
			for _, prefix := range recordPrefixes {
				entries, _, err := client.List(c.Context(), prefix)
				if err != nil {
					return err
				}
				for _, entry := range entries {
					revisions[entry.Key] = entry.Revision
				}
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(revisions)
		},
	}
	command.Flags().StringVar(&directory, "identity", "", "the identity of the node")
	command.Flags().StringVar(&clusterName, "cluster", "", "the cluster's name")
	command.Flags().StringVar(&member, "member", "", "address of the store's member")
	return command
}
