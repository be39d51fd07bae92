package cluster

import (
	"bytes"
	"encoding/json"
)

// Schema is the JSON schema (draft 2020-12) of the YAML file, for editors. It knows names, types and bounds; what only
// Parse can know, such as overlaps, it does not refuse.
func Schema() []byte {
	root := configTable.schema()
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Holdfast cluster"
	root["required"] = []string{"cluster"}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		panic("the schema is made of plain values: " + err.Error())
	}
	return b.Bytes()
}
