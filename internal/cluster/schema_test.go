package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

//go:generate go test -run TestSchemaIsShipped . -update

func TestSchemaIsShipped(t *testing.T) {
	checkGolden(t, "../../docs/cluster.schema.json", string(Schema()))
}

func schemaValue(t failer) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(Schema(), &out); err != nil {
		t.Fatalf("the schema is not JSON: %v", err)
	}
	return out
}

// plain turns a YAML tree into what a JSON schema speaks about.
func plain(n *node) any {
	switch n.kind {
	case kindNumber:
		f, err := strconv.ParseFloat(n.text, 64)
		if err != nil {
			return n.text
		}
		return f
	case kindBoolean:
		return n.text == "true"
	case kindNull:
		return nil
	case kindList:
		out := []any{}
		for _, item := range n.items {
			out = append(out, plain(item))
		}
		return out
	case kindMapping:
		out := map[string]any{}
		for _, e := range n.entries {
			out[e.key.text] = plain(e.value)
		}
		return out
	}
	return n.text
}

// schemaFaults checks a value against the keywords that our schema uses (JSON Schema 2020-12), and against no others: an
// unknown keyword is a fault of the schema.
func schemaFaults(schema map[string]any, value any, path string) (out []string) {
	fault := func(format string, args ...any) { out = append(out, path+": "+fmt.Sprintf(format, args...)) }
	for keyword, want := range schema {
		switch keyword {
		case "description", "default", "$schema", "title":
		case "type":
			if got := typeName(value); got != want && !(want == "integer" && got == "number" && value == float64(int64(value.(float64)))) {
				fault("is %s, want %v", got, want)
			}
		case "enum":
			if !slices.Contains(want.([]any), value) {
				fault("%v is not one of %v", value, want)
			}
		case "minimum", "maximum":
			if n, ok := value.(float64); ok && (keyword == "minimum" && n < want.(float64) || keyword == "maximum" && n > want.(float64)) {
				fault("%v is beyond the %s %v", n, keyword, want)
			}
		case "pattern":
			if s, ok := value.(string); ok && !regexp.MustCompile(want.(string)).MatchString(s) {
				fault("%q does not match %v", s, want)
			}
		case "maxLength":
			if s, ok := value.(string); ok && len(s) > int(want.(float64)) {
				fault("%q is too long", s)
			}
		case "minItems", "maxItems", "uniqueItems", "items":
			out = append(out, listFaults(keyword, want, value, path)...)
		case "properties", "required", "additionalProperties", "maxProperties":
			out = append(out, objectFaults(schema, keyword, want, value, path)...)
		default:
			fault("the schema has the keyword %s, which this test does not know", keyword)
		}
	}
	return out
}

func typeName(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

func listFaults(keyword string, want, value any, path string) (out []string) {
	list, ok := value.([]any)
	if !ok {
		return nil
	}
	switch keyword {
	case "minItems", "maxItems":
		n := int(want.(float64))
		if keyword == "minItems" && len(list) < n || keyword == "maxItems" && len(list) > n {
			out = append(out, fmt.Sprintf("%s: %d items, %s is %d", path, len(list), keyword, n))
		}
	case "uniqueItems":
		for i := range list {
			for j := range i {
				if fmt.Sprint(list[i]) == fmt.Sprint(list[j]) {
					out = append(out, fmt.Sprintf("%s: %v stands there twice", path, list[i]))
				}
			}
		}
	case "items":
		for i, item := range list {
			out = append(out, schemaFaults(want.(map[string]any), item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return out
}

func objectFaults(schema map[string]any, keyword string, want, value any, path string) (out []string) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	properties, _ := schema["properties"].(map[string]any)
	switch keyword {
	case "properties":
		for name, sub := range properties {
			if inner, present := object[name]; present {
				out = append(out, schemaFaults(sub.(map[string]any), inner, path+"."+name)...)
			}
		}
	case "required":
		for _, name := range want.([]any) {
			if _, present := object[name.(string)]; !present {
				out = append(out, fmt.Sprintf("%s: %v is missing", path, name))
			}
		}
	case "maxProperties":
		if len(object) > int(want.(float64)) {
			out = append(out, path+": too many entries")
		}
	case "additionalProperties":
		for name, inner := range object {
			if _, known := properties[name]; known {
				continue
			}
			if sub, isSchema := want.(map[string]any); isSchema {
				out = append(out, schemaFaults(sub, inner, path+"."+name)...)
			} else {
				out = append(out, fmt.Sprintf("%s: %s is not known", path, name))
			}
		}
	}
	return out
}

// What Print writes, and the reference, the schema takes: an editor does not underline what is right.
func TestSchemaTakesWhatParseTakes(t *testing.T) {
	schema := schemaValue(t)
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		for _, text := range [][]byte{Print(c), PrintAll(c)} {
			root, faults := readDocument(text)
			if len(faults) > 0 {
				t.Fatalf("%v", faults)
			}
			if got := schemaFaults(schema, plain(root), "$"); len(got) > 0 {
				t.Fatalf("%s\n%s", strings.Join(got, "\n"), text)
			}
		}
	})
	for _, file := range []string{"testdata/reference.yaml", "testdata/faults/warnings.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		root, _ := readDocument(data)
		if got := schemaFaults(schema, plain(root), "$"); len(got) > 0 {
			t.Errorf("%s: %s", file, strings.Join(got, "\n"))
		}
	}
}

// The schema finds the faults that an editor can know of.
func TestSchemaRefuses(t *testing.T) {
	schema := schemaValue(t)
	for _, name := range []string{"unknown-settings", "wrong-types", "missing-values", "bounds", "not-a-mapping"} {
		data, err := os.ReadFile(filepath.Join("testdata/faults", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		root, _ := readDocument(data)
		if got := schemaFaults(schema, plain(root), "$"); len(got) == 0 {
			t.Errorf("%s: the schema takes it", name)
		}
	}
}

// Every setting that may be left out says in the schema what it then is, and that passes the schema itself. What is empty text
// by default says nothing, as in Print.
func TestSchemaHasDefaults(t *testing.T) {
	var walk func(path string, schema map[string]any)
	lists := 0
	walk = func(path string, schema map[string]any) {
		def, given := schema["default"]
		if given {
			for _, fault := range schemaFaults(schema, def, path) {
				t.Errorf("the default does not pass: %s", fault)
			}
		}
		if _, needed := schema["minItems"]; schema["type"] == "array" && !needed {
			lists++
			if !given {
				t.Errorf("%s: a list without a default", path)
			}
		}
		if items, ok := schema["items"].(map[string]any); ok {
			walk(path+"[]", items)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, sub := range properties {
			walk(path+"."+name, sub.(map[string]any))
		}
	}
	schema := schemaValue(t)
	walk("$", schema)
	if lists < 15 {
		t.Errorf("only %d lists were found", lists)
	}
	settings := schema["properties"].(map[string]any)["cluster"].(map[string]any)["properties"].(map[string]any)
	ports := settings["client-ports"].(map[string]any)["default"]
	if got := fmt.Sprint(ports); got != "[20 21 80 443 445 2049]" {
		t.Errorf("client-ports are %s by default", got)
	}
}
