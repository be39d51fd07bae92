package lab

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// serveCommand is the web server that scenarios run on every node. It answers every request with the node's name.
func serveCommand() *cobra.Command {
	port := 80
	command := &cobra.Command{
		Use: "serve-http", Short: "Answer every HTTP request with this member's name", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			name, err := os.Hostname()
			if err != nil {
				return err
			}
			server := &http.Server{
				Addr:              fmt.Sprintf(":%d", port),
				ReadHeaderTimeout: 10 * time.Second,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					fmt.Fprint(w, name)
				}),
			}
			if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving HTTP on port %d: %w", port, err)
			}
			return nil
		},
	}
	command.Flags().IntVar(&port, "port", port, "TCP port")
	return command
}
