package cluster

// EditOp is how an edit changes a setting.
type EditOp string

// The four ways: --X=VALUE, --clear-X, --add-X=VALUE, --remove-X=VALUE.
const (
	Set    EditOp = "set"
	Clear  EditOp = "clear"
	Add    EditOp = "add"
	Remove EditOp = "remove"
)

// Edit is one flag of a modify or create command.
type Edit struct {
	Setting string // its name in the YAML, such as sc-service-addrs
	Op      EditOp
	Value   string // empty for Clear; the items of a list are separated by commas
}
