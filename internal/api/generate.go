package api

// The contract is written in proto/; the Go for it is generated and committed.
//
//go:generate go -C ../.. tool -modfile=tools/go.mod buf generate proto --template proto/buf.gen.yaml
