package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func agentCommand() *cobra.Command { return absent("agent", "Run the agent of this node") }

func labCommand() *cobra.Command {
	return absent("lab", "Run a disposable cluster in network namespaces of this machine")
}

func absent(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: func(*cobra.Command, []string) error {
		return errors.New(use + " is not part of this build")
	}}
}
