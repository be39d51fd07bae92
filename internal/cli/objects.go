package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
)

// kind is one kind of object of the configuration, with all that its list, view, create, modify and delete need.
type kind struct {
	noun, plural string // "pool", "pools"
	argument     string // "POOL"
	example      string // of an id
	object       pb.ModifyRequest_ObjectKind
	settings     []cluster.Setting
	columns      []string // settings that the table of all shows
	all          func(*cluster.Config) []entry
	whole        func(*cluster.Config, string) (string, error) // the whole id for a short one; nil: there are no short ones
}

// entry is one object and its id.
type entry struct {
	id   string
	view object
}

// commands are list, view, create, modify and delete.
func (s *session) commands(k kind) []*cobra.Command {
	return []*cobra.Command{s.listCommand(k), s.viewCommand(k), s.createCommand(k), s.modifyCommand(k), s.deleteCommand(k)}
}

// askConfig returns the configuration in force.
func (s *session) askConfig(cmd *cobra.Command) (*cluster.Config, error) {
	answer, err := ask(s, cmd, "asking the agent", askTimeout, func(ctx context.Context, c Client) (*pb.GetConfigResponse, error) {
		return c.GetConfig(ctx, &pb.GetConfigRequest{})
	})
	if err != nil {
		return nil, err
	}
	return parseInForce(answer)
}

func parseInForce(answer *pb.GetConfigResponse) (*cluster.Config, error) {
	config, err := cluster.Parse("the configuration in force", []byte(answer.Yaml))
	if err != nil {
		return nil, failed("cannot read what the agent has in force; command line and agent are of different versions:\n%s", err)
	}
	return config, nil
}

func (s *session) listCommand(k kind) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the " + k.plural, Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := s.askConfig(cmd)
			if err != nil {
				return err
			}
			entries := k.all(config)
			tree, rows := list{}, [][]string{}
			for _, e := range entries {
				tree = append(tree, snake(e.id, e.view))
				row := []string{e.id}
				for _, column := range k.columns {
					row = append(row, flat(e.view.get(column)))
				}
				rows = append(rows, row)
			}
			return s.print(object{{k.plural, tree}}, func(p *page) {
				header := []string{strings.ToUpper(k.noun)}
				for _, column := range k.columns {
					header = append(header, strings.ToUpper(column))
				}
				p.table(header, rows)
			})
		},
	}
}

func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// ids is the source of completion for a kind.
func (k kind) ids(config *cluster.Config) []string {
	var out []string
	for _, e := range k.all(config) {
		out = append(out, e.id)
	}
	return out
}

// find takes a whole id, or a short one as cluster understands it.
func (k kind) find(config *cluster.Config, id string) (entry, error) {
	whole := id
	if k.whole != nil {
		var err error
		if whole, err = k.whole(config, id); err != nil {
			return entry{}, failed("%s", err)
		}
	}
	for _, e := range k.all(config) {
		if e.id == whole {
			return e, nil
		}
	}
	known := k.ids(config)
	if len(known) == 0 {
		return entry{}, failed("there is no %s %q: there is none at all", k.noun, id)
	}
	if len(known) > 10 {
		known = append(known[:10:10], "...")
	}
	return entry{}, failed("there is no %s %q; there is %s", k.noun, id, strings.Join(known, ", "))
}

// wholeSubnet and the next two turn an id as somebody wrote it into the whole one.
func wholeSubnet(c *cluster.Config, id string) (string, error) {
	subnet, err := cluster.ParseSubnetID(c, id)
	return subnet.String(), err
}

func wholePool(c *cluster.Config, id string) (string, error) {
	pool, err := cluster.ParsePoolID(c, id)
	return pool.String(), err
}

// wholePart is for what belongs to a pool and has a name of its own.
func wholePart(c *cluster.Config, id string) (string, error) {
	dot := strings.LastIndexByte(id, '.')
	if dot < 0 {
		return id, nil // find says what there is
	}
	pool, err := cluster.ParsePoolID(c, id[:dot])
	return pool.String() + id[dot:], err
}

func (s *session) viewCommand(k kind) *cobra.Command {
	return &cobra.Command{
		Use: "view " + k.argument, Short: "Show every setting of a " + k.noun, Args: arguments(k.argument),
		ValidArgsFunction: s.complete(0, configured(k.ids)),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := s.askConfig(cmd)
			if err != nil {
				return err
			}
			e, err := k.find(config, args[0])
			if err != nil {
				return err
			}
			return s.print(snake(e.id, e.view), func(p *page) { layView(p, e) })
		},
	}
}

func layView(p *page, e entry) {
	rows := [][]string{{"id", e.id}}
	for _, m := range e.view {
		value := flat(m.value)
		if value == "" {
			value = "-"
		}
		rows = append(rows, []string{m.name, value})
	}
	p.table(nil, rows)
}

func (s *session) createCommand(k kind) *cobra.Command {
	cmd := &cobra.Command{
		Use: "create " + k.argument, Short: "Create a " + k.noun, Args: arguments(k.argument),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	changes := addSettingFlags(cmd, k.settings, true)
	for _, setting := range k.settings {
		if setting.Required && setting.Name != "name" {
			if err := cmd.MarkFlagRequired(setting.Name); err != nil {
				panic(err)
			}
		}
	}
	return s.changing(cmd, "creating "+k.noun, func(args []string, o *pb.ChangeOptions) (func(context.Context, Client) (*pb.ChangeResult, error), error) {
		return modifying(&pb.ModifyRequest{ObjectKind: k.object, Id: args[0], Verb: pb.ModifyRequest_create, Edits: changes.all, Options: o}), nil
	})
}

func (s *session) modifyCommand(k kind) *cobra.Command {
	use, names := "modify", []string(nil)
	if k.argument != "" {
		use, names = "modify "+k.argument, []string{k.argument}
	}
	cmd := &cobra.Command{
		Use: use, Short: "Change settings of a " + k.noun, Args: arguments(names...),
		ValidArgsFunction: s.complete(0, configured(k.ids)),
	}
	changes := addSettingFlags(cmd, k.settings, false)
	return s.changing(cmd, "changing "+k.noun, func(args []string, o *pb.ChangeOptions) (func(context.Context, Client) (*pb.ChangeResult, error), error) {
		if len(changes.all) == 0 {
			return nil, misused("say what to change, such as --%s; all settings are in 'holdfast ... modify --help'", firstFlag(k.settings))
		}
		id := ""
		if len(args) > 0 {
			id = args[0]
		}
		return modifying(&pb.ModifyRequest{ObjectKind: k.object, Id: id, Verb: pb.ModifyRequest_modify, Edits: changes.all, Options: o}), nil
	})
}

func firstFlag(settings []cluster.Setting) string {
	for _, setting := range settings {
		if !setting.Fixed {
			return fmt.Sprintf("%s %s", setting.Name, strings.ToUpper(string(setting.Type)))
		}
	}
	return "X"
}

func (s *session) deleteCommand(k kind) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete " + k.argument, Short: "Delete a " + k.noun, Args: arguments(k.argument),
		ValidArgsFunction: s.complete(0, configured(k.ids)),
	}
	return s.changing(cmd, "deleting "+k.noun, func(args []string, o *pb.ChangeOptions) (func(context.Context, Client) (*pb.ChangeResult, error), error) {
		return modifying(&pb.ModifyRequest{ObjectKind: k.object, Id: args[0], Verb: pb.ModifyRequest_delete, Options: o}), nil
	})
}

func modifying(request *pb.ModifyRequest) func(context.Context, Client) (*pb.ChangeResult, error) {
	return func(ctx context.Context, c Client) (*pb.ChangeResult, error) { return c.Modify(ctx, request) }
}
