package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/identity"
)

func (s *session) initCommand() *cobra.Command {
	var name, file, node, dir string
	var interfaces, texts []string
	cmd := &cobra.Command{
		Use: "init", Short: "Make a new cluster's authority, and the identity and configuration of its first node", Args: arguments(),
		Long: `Make a new cluster's authority, and the identity and configuration of its first node. The directory gets:

  cluster.yaml   the configuration: the file given with -f, or one with this node alone
  identity/      the authority, this node's certificate, and the cluster's secret; keep ca.key safe

Other nodes get their identity from 'holdfast identity issue'. Nothing that exists is overwritten.`,
		Example: "  holdfast init --cluster store1 --node node1 --dir /var/lib/holdfast --address 10.0.0.1\n  holdfast init -f cluster.yaml --node node1 --dir /var/lib/holdfast",
		RunE: func(*cobra.Command, []string) error {
			if (name == "") == (file == "") {
				return misused("say --cluster NAME for a new configuration, or -f FILE for one that exists")
			}
			addresses, err := parseAddresses(texts)
			if err != nil {
				return err
			}
			var config *cluster.Config
			var text []byte
			if file != "" {
				config, text, err = s.firstFromFile(file, node, &addresses)
			} else {
				config, text, err = firstFromNames(name, node, interfaces, addresses)
			}
			if err != nil {
				return err
			}
			if err := writeFirst(dir, config.Settings.Name, node, addresses, text); err != nil {
				return err
			}
			return s.print(object{{"cluster", config.Settings.Name}, {"node", node}, {"configuration", filepath.Join(dir, "cluster.yaml")}, {"identity", filepath.Join(dir, "identity")}},
				func(p *page) {
					p.linef("cluster %s with its first node %s is in %s", config.Settings.Name, node, dir)
					p.linef("next: look through %s, then start the agent", filepath.Join(dir, "cluster.yaml"))
				})
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "cluster", "", "name of the new cluster")
	f.StringVarP(&file, "file", "f", "", "configuration file that has the node")
	f.StringVar(&node, "node", "", "name of this node")
	f.StringVar(&dir, "dir", "", "directory to write to, such as /var/lib/holdfast")
	f.StringSliceVar(&texts, "address", nil, "address on which other nodes reach this one")
	f.StringSliceVar(&interfaces, "interface", nil, "interface that pools may use, such as eth0; only with --cluster")
	for _, flag := range []string{"node", "dir"} {
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic(err)
		}
	}
	return cmd
}

// firstFromFile checks the file and that it has the node; the node's addresses there go into its certificate too.
func (s *session) firstFromFile(path, node string, addresses *[]netip.Addr) (*cluster.Config, []byte, error) {
	name, text, err := s.readFile(path)
	if err != nil {
		return nil, nil, err
	}
	config, err := cluster.Parse(name, text)
	if err != nil {
		return nil, nil, failed("%s is refused:\n%s", name, err)
	}
	found, ok := config.NodeNamed(node)
	if !ok {
		return nil, nil, failed("%s has no node %q: add it to the file under nodes, or name one that is there with --node", name, node)
	}
	*addresses = append(*addresses, found.Addresses...)
	return config, text, nil
}

// firstFromNames makes the smallest configuration.
func firstFromNames(name, node string, interfaces []string, addresses []netip.Addr) (*cluster.Config, []byte, error) {
	empty, err := cluster.Parse("the new configuration", []byte("cluster: {name: "+quoted(name)+"}\n"))
	if err != nil {
		return nil, nil, failed("these names cannot be used:\n%s", err)
	}
	var edits []cluster.Edit
	for _, i := range interfaces {
		edits = append(edits, cluster.Edit{Setting: "interfaces", Op: cluster.Add, Value: i})
	}
	for _, a := range addresses {
		edits = append(edits, cluster.Edit{Setting: "addresses", Op: cluster.Add, Value: a.String()})
	}
	config, err := cluster.AddNode(empty, node, 1, edits)
	if err != nil {
		return nil, nil, failed("these names cannot be used:\n%s", err)
	}
	return config, cluster.Print(config), nil
}

// writeFirst writes the identity first: it is what refuses to overwrite.
func writeFirst(dir, name, node string, addresses []netip.Addr, text []byte) error {
	file := filepath.Join(dir, "cluster.yaml")
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return failed("%s exists already: a cluster is made once; choose another directory, or remove what is there", file)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return failed("making %s: %v", dir, err)
	}
	keys := filepath.Join(dir, "identity")
	if err := identity.Init(keys, name); err != nil {
		return failed("%s", err)
	}
	if err := identity.Issue(keys, keys, node, addresses, nil); err != nil {
		return failed("%s", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return failed("writing the configuration: %v", err)
	}
	return nil
}

func parseAddresses(texts []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return nil, misused("--address %q is not an address such as 10.0.0.1 or fd00::1", text)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

func (s *session) identityCommand() *cobra.Command {
	top := group("identity", "Certificates of the cluster's nodes", "")
	var texts, names []string
	var out, authority string
	issue := &cobra.Command{
		Use: "issue NODE", Short: "Issue a node's certificate; needs the cluster's authority, no agent", Args: arguments("NODE"),
		Long: "Issue a node's certificate with the cluster's authority (ca.key). Copy the resulting directory to the node, as secret as a password.",
		Example: "  holdfast identity issue node2 --address 10.0.0.2 --out node2-identity --authority /var/lib/holdfast/identity\n" +
			"  scp -r node2-identity node2:/var/lib/holdfast/identity",
		RunE: func(_ *cobra.Command, args []string) error {
			addresses, err := parseAddresses(texts)
			if err != nil {
				return err
			}
			if err := identity.Issue(authority, out, args[0], addresses, names); err != nil {
				return failed("%s", err)
			}
			return s.print(object{{"node", args[0]}, {"identity", out}}, func(p *page) {
				p.line(fmt.Sprintf("the identity of %s is in %s: copy the directory to the node", args[0], out))
			})
		},
	}
	f := issue.Flags()
	f.StringSliceVar(&texts, "address", nil, "address on which other nodes reach this one")
	f.StringSliceVar(&names, "dns-name", nil, "further DNS name in the certificate")
	f.StringVar(&out, "out", "", "directory to write to")
	f.StringVar(&authority, "authority", "/var/lib/holdfast/identity", "directory with the cluster's ca.key")
	if err := issue.MarkFlagRequired("out"); err != nil {
		panic(err)
	}
	top.AddCommand(issue)
	return top
}
