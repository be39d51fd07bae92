package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
)

// edits are the settings that a command line changes, in its order.
type edits struct {
	all []*pb.Edit
}

// addSettingFlags gives cmd the flags of settings: --X for each; --clear-X, --add-X and --remove-X for lists. With create,
// the settings that are given only then are among them. The name is the command's argument and never a flag.
func addSettingFlags(cmd *cobra.Command, settings []cluster.Setting, create bool) *edits {
	e := &edits{}
	for _, setting := range settings {
		if setting.Name == "name" || setting.Fixed && !create {
			continue
		}
		e.addFlag(cmd, setting, pb.Edit_set, "")
		if create {
			continue
		}
		if setting.List {
			e.addFlag(cmd, setting, pb.Edit_add, "add-")
			e.addFlag(cmd, setting, pb.Edit_remove, "remove-")
		}
		if !setting.Required {
			e.addFlag(cmd, setting, pb.Edit_clear, "clear-")
			cmd.MarkFlagsMutuallyExclusive(setting.Name, "clear-"+setting.Name)
		}
	}
	return e
}

func (e *edits) addFlag(cmd *cobra.Command, setting cluster.Setting, op pb.Edit_Op, prefix string) {
	name := prefix + setting.Name
	value := &editFlag{edits: e, setting: setting, op: op}
	flag := cmd.Flags().VarPF(value, name, "", settingHelp(setting, op))
	if op == pb.Edit_clear {
		flag.NoOptDefVal = "true"
		flag.Hidden = !setting.List // for single values, writing the default does the same
		return
	}
	if len(setting.Words) > 0 {
		completeWords(cmd, name, setting.Words...)
	} else {
		completeWords(cmd, name)
	}
}

func settingHelp(setting cluster.Setting, op pb.Edit_Op) string {
	switch op {
	case pb.Edit_add:
		return "add to " + setting.Name
	case pb.Edit_remove:
		return "remove from " + setting.Name
	case pb.Edit_clear:
		if setting.Default != "" {
			return "bring back the default of " + setting.Name + " (" + setting.Default + ")"
		}
		return "empty " + setting.Name
	}
	text := setting.Help + ": " + setting.Value
	if setting.List {
		text += "; several are separated by commas"
	}
	if setting.Default != "" {
		text += " (default " + setting.Default + ")"
	}
	return text
}

// editFlag is one flag that adds an edit each time it is given.
type editFlag struct {
	edits   *edits
	setting cluster.Setting
	op      pb.Edit_Op
}

// String is empty: what is not given changes nothing.
func (f *editFlag) String() string { return "" }

// Set records one edit. A list that is set several times is the whole of them.
func (f *editFlag) Set(value string) error {
	if f.op == pb.Edit_clear {
		wanted, err := strconv.ParseBool(value)
		if err != nil || !wanted {
			return misused("this flag takes no value")
		}
		value = ""
	}
	if f.op == pb.Edit_set {
		for _, old := range f.edits.all {
			if old.Setting == f.setting.Name && old.Op == pb.Edit_set {
				if f.setting.List && old.Value != "" {
					value = old.Value + "," + value
				}
				old.Value = value
				return nil
			}
		}
	}
	f.edits.all = append(f.edits.all, &pb.Edit{Setting: f.setting.Name, Op: f.op, Value: value})
	return nil
}

// Type is shown in help.
func (f *editFlag) Type() string {
	if f.op == pb.Edit_clear {
		return "bool" // pflag shows no value for it
	}
	return string(f.setting.Type)
}
