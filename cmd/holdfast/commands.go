package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/agent"
	"github.com/holdfast/holdfast/internal/broker/gateway"
	"github.com/holdfast/holdfast/internal/guard"
	"github.com/holdfast/holdfast/internal/lab"
	"github.com/holdfast/holdfast/internal/sim"
)

func agentCommand() *cobra.Command { return agent.Command(cmp.Or(version, "development")) }

func guardCommand() *cobra.Command { return guard.Command() }

func gatewayCommand() *cobra.Command { return gateway.Command(version) }

func labCommand() *cobra.Command { return lab.Command() }

func simCommand() *cobra.Command { return sim.Command() }

// size is the question of `network pools size` with numbers, for which no agent has to run.
var size = agent.Size
