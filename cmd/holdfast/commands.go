package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/agent"
	"github.com/holdfast/holdfast/internal/lab"
)

func agentCommand() *cobra.Command { return agent.Command(cmp.Or(version, "development")) }

func labCommand() *cobra.Command { return lab.Command() }
