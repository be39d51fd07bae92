package cluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// kind is what a YAML value looks like.
type kind int

const (
	kindText kind = iota
	kindNumber
	kindBoolean
	kindNull
	kindList
	kindMapping
	kindRefused // already reported; nothing more is said about it
)

// String names the kind for messages.
func (k kind) String() string {
	return [...]string{"text", "a number", "true or false", "nothing", "a list", "a mapping of settings", "refused"}[k]
}

// node is one value of a YAML document. It keeps this package independent of the YAML library's own tree.
type node struct {
	kind         kind
	text         string // of scalars, as it stands after unquoting
	line, column int
	items        []*node // of lists
	entries      []entry // of mappings, in the order of the file
	isDefault    bool    // written out although it is the default
}

type entry struct {
	key   *node
	value *node
}

// get returns the value of a key of a mapping, nil when it has none.
func (n *node) get(key string) *node {
	for _, e := range n.entries {
		if e.key.text == key {
			return e.value
		}
	}
	return nil
}

// unquoted is what somebody wrote where a mapping with one key was read, if they hardly meant one: no blank follows the colon,
// which is how an IPv6 address (fd00::1) or a member (1:eth0) without quotes is read inside braces, or the value ends in a colon
// (fd00::). Empty otherwise.
func (n *node) unquoted() string {
	if n.kind != kindMapping || len(n.entries) != 1 {
		return ""
	}
	key, value := n.entries[0].key, n.entries[0].value
	switch {
	case value.kind == kindNull && strings.HasSuffix(key.text, ":"):
		return key.text + ":"
	case value.kind <= kindBoolean && value.line == key.line && value.column == key.column+len(key.text)+1:
		return key.text + ":" + value.text
	}
	return ""
}

// readDocument turns YAML text into one tree. The faults have lines and columns.
func readDocument(data []byte) (*node, Faults) {
	if len(data) > MaxFileBytes {
		return nil, Faults{{Message: fmt.Sprintf("the file has %d bytes; at most %d are read", len(data), MaxFileBytes)}}
	}
	tokens := lexer.Tokenize(plainLines(data))
	if f, beyond := tooLarge(tokens); beyond {
		return nil, Faults{f}
	}
	file, fault := parseTokens(tokens)
	if fault != nil {
		return nil, Faults{*fault}
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.DirectiveType && doc.Body.Type() != ast.CommentType {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return nil, Faults{{Message: "the file is empty; it needs at least cluster: {name: NAME}"}}
	case 1:
	default:
		line, column := position(bodies[1])
		return nil, Faults{{Line: line, Column: column, Message: "a second document starts here; write one document, without ---"}}
	}
	var c converter
	root := c.convert(bodies[0], 0)
	return root, c.faults
}

// plainLines is the text without a byte order mark and with every line break as one newline (YAML 1.2 section 5.4), so that
// lines are counted in one way.
func plainLines(data []byte) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(data), "\ufeff"))
}

// parseTokens runs the library's parser. A panic in it on a broken file is reported as the file's fault.
func parseTokens(tokens token.Tokens) (file *ast.File, fault *Fault) {
	defer func() {
		if recover() != nil {
			file, fault = nil, &Fault{Message: "this is not YAML that can be read; remove the last changes one by one to find the place"}
		}
	}()
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, nil
	}
	fault = &Fault{Message: "this is not valid YAML"}
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) { // its Error method costs seconds on a large file; its fields do not
		fault.Message = "this is not valid YAML: " + printable(firstLine(syntax.Message))
		if strings.Contains(syntax.Message, "'\t'") {
			fault.Message = "a tab stands where YAML takes only spaces"
		} else if beginsWithColons(syntax.Token) {
			fault.Message = "a value that begins with a colon must be in quotes, such as \"::1\""
		}
		if syntax.Token != nil && syntax.Token.Position != nil {
			fault.Line, fault.Column = syntax.Token.Position.Line, syntax.Token.Position.Column
		}
	}
	return nil, fault
}

// beginsWithColons reports whether two colons stand together where the parser gave up: an IPv6 address without quotes.
func beginsWithColons(t *token.Token) bool {
	return t != nil && t.Type == token.MappingValueType && t.Next != nil && strings.HasPrefix(t.Next.Value, ":") &&
		t.Position != nil && t.Next.Position != nil && t.Next.Position.Offset == t.Position.Offset+1
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// tokenScan finds what the parser would not survive or take minutes over, before it runs: it recurses into nesting, and
// its time grows with the square of the keys of one mapping.
type tokenScan struct {
	flow   []int       // keys in each open bracket
	block  map[int]int // keys of the block mappings, by their column
	line   int
	inLine int // markers in this line that nest: - ? ! &
}

// tooLarge reports the first token that goes beyond a bound. Nesting by indentation alone is bounded by the square root of
// the file's size, so that only brackets and markers in one line are counted.
func tooLarge(tokens token.Tokens) (Fault, bool) {
	s := tokenScan{block: map[int]int{}}
	for i, t := range tokens {
		if t.Position == nil {
			continue
		}
		keys := s.step(t, i > 0 && t.Type == token.MappingValueType, tokens, i)
		fault := Fault{Line: t.Position.Line, Column: t.Position.Column}
		switch {
		case len(s.flow) > maxDepth || s.inLine > maxDepth:
			fault.Message = fmt.Sprintf("nested more than %d deep", maxDepth)
		case keys > maxKeys:
			fault.Message = fmt.Sprintf("more than %d settings in one place", maxKeys)
		default:
			continue
		}
		return fault, true
	}
	return Fault{}, false
}

// step counts one token and returns how many keys its mapping has by now.
func (s *tokenScan) step(t *token.Token, isKey bool, tokens token.Tokens, i int) int {
	if t.Position.Line != s.line {
		s.line, s.inLine = t.Position.Line, 0
	}
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		s.flow = append(s.flow, 0)
	case token.MappingEndType, token.SequenceEndType:
		s.flow = s.flow[:max(0, len(s.flow)-1)]
	case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
		s.inLine++
		isKey = t.Type == token.MappingKeyType
	}
	if !isKey {
		return 0
	}
	if n := len(s.flow); n > 0 {
		s.flow[n-1]++
		return s.flow[n-1]
	}
	column := t.Position.Column
	if t.Type == token.MappingValueType && tokens[i-1].Position != nil {
		column = tokens[i-1].Position.Column
	}
	for c := range s.block {
		if c > column {
			delete(s.block, c)
		}
	}
	s.block[column]++
	return s.block[column]
}

// converter turns the library's tree into ours and collects what this package does not take.
type converter struct{ faults Faults }

func (c *converter) refuse(n ast.Node, format string, args ...any) {
	line, column := position(n)
	c.faults = append(c.faults, Fault{Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}

// convert never returns nil; what it has refused and reported is of kindRefused.
func (c *converter) convert(n ast.Node, depth int) *node {
	if n == nil {
		return &node{kind: kindNull}
	}
	out := &node{}
	out.line, out.column = position(n)
	if depth > maxDepth {
		c.refuse(n, "nested more than %d deep", maxDepth)
		out.kind = kindRefused
		return out
	}
	switch n := n.(type) {
	case *ast.NullNode:
		out.kind = kindNull
	case *ast.BoolNode:
		out.kind, out.text = kindBoolean, n.GetToken().Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = kindNumber, n.GetToken().Value
	case *ast.StringNode:
		out.text = n.Value
	case *ast.LiteralNode:
		if n.Value != nil {
			out.text = n.Value.Value
		}
	case *ast.SequenceNode:
		out.kind = kindList
		for _, item := range n.Values {
			out.items = append(out.items, c.convert(item, depth+1))
		}
	case *ast.MappingNode:
		out.kind = kindMapping
		for _, pair := range n.Values {
			c.pair(out, pair, depth)
		}
	case *ast.MappingValueNode:
		out.kind = kindMapping
		c.pair(out, n, depth)
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		c.refuse(n, "anchors, aliases and merge keys are not taken here; write the value out")
		out.kind = kindRefused
	case *ast.TagNode:
		c.refuse(n, "tags are not taken here; remove %s", shown(n.GetToken().Value))
		out.kind = kindRefused
	default:
		c.refuse(n, "this form of YAML is not taken here")
		out.kind = kindRefused
	}
	return out
}

func (c *converter) pair(out *node, pair *ast.MappingValueNode, depth int) {
	key := scalarKey(pair.Key)
	if key == nil {
		if _, merge := pair.Key.(*ast.MergeKeyNode); merge {
			c.refuse(pair.Key, "anchors, aliases and merge keys are not taken here; write the value out")
		} else {
			c.refuse(pair.Key, "a key must be plain text")
		}
		return
	}
	for _, e := range out.entries {
		if e.key.text == key.text {
			c.faults = append(c.faults, Fault{Line: key.line, Column: key.column,
				Message: fmt.Sprintf("%s is written twice; the first is in line %d", printable(key.text), e.key.line)})
			return
		}
	}
	value := c.convert(pair.Value, depth+1)
	if value.kind == kindNull || value.line == 0 {
		value.line, value.column = key.line, key.column
	}
	out.entries = append(out.entries, entry{key, value})
}

func scalarKey(k ast.MapKeyNode) *node {
	out := &node{}
	if k == nil {
		return nil
	}
	switch k := k.(type) {
	case *ast.StringNode:
		out.text = k.Value
	case *ast.IntegerNode:
		out.kind, out.text = kindNumber, k.GetToken().Value
	case *ast.BoolNode:
		out.kind, out.text = kindBoolean, k.GetToken().Value
	default:
		return nil
	}
	out.line, out.column = position(k)
	return out
}

// position is where the value starts. A block mapping starts at its first key; the library gives its first colon.
func position(n ast.Node) (line, column int) {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return position(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(m.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 0, 0
}
