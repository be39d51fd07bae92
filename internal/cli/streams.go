package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (s *session) eventsCommand() *cobra.Command {
	request := &pb.EventsRequest{}
	var since time.Duration
	cmd := &cobra.Command{
		Use: "events", Short: "Show what happened, oldest first", Args: arguments(),
		Long: "Show what happened, oldest first. With --output json each event is one line.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since > 0 {
				request.Since = timestamppb.New(s.Now().Add(-since))
			}
			client := s.Dial(s.socket)
			defer client.Close()
			stream, err := client.Events(cmd.Context(), request)
			return follow(s, cmd.Context(), stream, err, func(e *pb.Event) (bool, error) {
				return true, s.stream(e, func(p *page) {
					failover := ""
					if id := e.Fields["failover"]; id != "" {
						failover = fmt.Sprintf(" (event %d of failover %s)", e.Id, id)
					}
					p.linef("%s  %-8s  %-20s  %s: %s%s", e.At.AsTime().UTC().Format("2006-01-02 15:04:05.000"), e.Node, e.Kind, e.Subject, e.Message, failover)
				})
			})
		},
	}
	cmd.Flags().BoolVarP(&request.Follow, "follow", "f", false, "go on with what happens, until interrupted")
	cmd.Flags().DurationVar(&since, "since", 0, "only what happened within this time, such as 10m")
	return cmd
}

// follow takes messages of a stream until it ends, fails, is interrupted, or take says enough.
func follow[M any](s *session, ctx context.Context, stream *connect.ServerStreamForClient[M], err error, take func(*M) (more bool, err error)) error {
	if err != nil {
		return s.explained(err, askTimeout)
	}
	defer stream.Close()
	for stream.Receive() {
		if more, err := take(stream.Msg()); err != nil || !more {
			return err
		}
	}
	if err := stream.Err(); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return s.explained(err, askTimeout)
	}
	return nil
}

func (s *session) topCommand() *cobra.Command {
	var interval time.Duration
	var samples int
	cmd := &cobra.Command{
		Use: "top", Short: "Watch the load of every node", Args: arguments(),
		Long: "Watch the load of every node, until interrupted. With --output json each sample is one line.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval != 0 && (interval < 100*time.Millisecond || interval > time.Hour) {
				return misused("--interval %s is not between 100ms and 1h", interval)
			}
			client := s.Dial(s.socket)
			defer client.Close()
			stream, err := client.Top(cmd.Context(), &pb.TopRequest{IntervalMs: interval.Milliseconds()})
			taken := 0
			return follow(s, cmd.Context(), stream, err, func(sample *pb.TopSample) (bool, error) {
				taken++
				err := s.stream(sample, func(p *page) { layTop(p, sample, s.OutTerminal, taken) })
				return samples == 0 || taken < samples, err
			})
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", 0, "time between samples (default: the cluster's sample interval)")
	cmd.Flags().IntVarP(&samples, "samples", "n", 0, "end after so many samples; 0: never")
	return cmd
}

func layTop(p *page, sample *pb.TopSample, redraw bool, taken int) {
	switch {
	case redraw:
		p.out.WriteString("\x1b[H\x1b[2J") // cursor home, clear
	case taken > 1:
		p.blank()
	}
	p.line(sample.At.AsTime().UTC().Format("2006-01-02 15:04:05 UTC"))
	rows := make([][]string, len(sample.Nodes))
	for i, n := range sample.Nodes {
		cpu, net, connections, rate := "-", "-", "-", "-"
		if l := n.Load; l.GetKnown() {
			cpu, net = fmt.Sprintf("%.0f%%", 100*l.Cpu), fmt.Sprintf("%.0f%%", 100*l.Throughput)
			connections, rate = number(l.Connections), bytesText(l.BytesPerSecond)+"/s"
		}
		rows[i] = []string{n.Name, n.State.String(), cpu, connections, rate, net, fmt.Sprintf("%.1f", n.AnswersPerSecond),
			number(len(n.PoolAddresses)), strings.Join(n.ServiceAddresses, " ")}
	}
	p.table([]string{"NODE", "STATE", "CPU", "CONNECTIONS", "THROUGHPUT", "LINK", "ANSWERS/S", "ADDRESSES", "SERVICE ADDRESSES"}, rows)
}

// bytesText writes a size with a decimal prefix, as network rates have.
func bytesText(n float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.3g TB", n)
}
