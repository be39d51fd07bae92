package lab

import "github.com/spf13/cobra"

func runCommand() *cobra.Command     { return &cobra.Command{Use: "run"} }
func serveCommand() *cobra.Command   { return &cobra.Command{Use: "serve-http"} }
func connectCommand() *cobra.Command { return &cobra.Command{Use: "connect"} }
