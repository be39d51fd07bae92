package lab

import (
	"encoding/json"
	"fmt"
)

// This file holds everything that the lab reads from the output of the holdfast command.

// nodeReport is what the lab needs of `holdfast status --output json`.
type nodeReport struct {
	Serving bool   `json:"serving"`
	Reason  string `json:"reason"`
}

func parseNodeReport(data []byte) (nodeReport, error) {
	var r nodeReport
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading `holdfast status --output json`: %w", err)
	}
	return r, nil
}
