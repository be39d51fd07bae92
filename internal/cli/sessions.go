package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/broker/recording"
)

// defaultRecordings is where a gateway keeps its recordings unless it is configured otherwise.
const defaultRecordings = "/var/lib/holdfast/recordings"

// recordings are the flags that the commands over recordings have in common.
type recordings struct {
	directory   string
	identities  []string
	who, target string
	since       time.Duration
	limit       int
}

// mostRecordings bounds --limit.
const mostRecordings = 100_000

func (s *session) sessionsCommand() *cobra.Command {
	root := group("sessions", "Look at recorded sessions of a gateway", `Look at the sessions that a gateway of this machine has recorded. These commands read the files in the gateway's directory of
recordings, and need no agent and no gateway. A session is named by its ID, or by the beginning of it.

Recordings are asciicasts of version 2, so that other players can play those that are not encrypted.`)
	root.AddCommand(s.sessionsList(), s.sessionsPlay(), s.sessionsSearch())
	return root
}

func (r *recordings) common(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.directory, "dir", defaultRecordings, "the gateway's directory of recordings")
}

func (r *recordings) keys(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&r.identities, "identity", nil, "file with a key that opens encrypted recordings, as age-keygen writes it")
}

func (r *recordings) filters(cmd *cobra.Command, limit int, what string) {
	cmd.Flags().StringVar(&r.who, "who", "", "only sessions of this requester")
	cmd.Flags().StringVar(&r.target, "target", "", "only sessions whose target begins with this")
	cmd.Flags().DurationVar(&r.since, "since", 0, "only sessions that began within this time, such as 24h")
	cmd.Flags().IntVar(&r.limit, "limit", limit, what)
}

// open opens the directory, which must be there.
func (r *recordings) open() (*recording.Store, error) {
	store, err := recording.OpenStore(r.directory)
	if err != nil {
		return nil, failed("%v", err)
	}
	return store, nil
}

// keep says which recordings are asked for.
func (r *recordings) keep(now time.Time) func(recording.Entry) bool {
	return func(e recording.Entry) bool {
		began, err := time.Parse(time.RFC3339, e.About.Began)
		return (r.who == "" || e.About.Who == r.who) && strings.HasPrefix(e.About.Target, r.target) && (r.since == 0 || err == nil && now.Sub(began) <= r.since)
	}
}

func (r *recordings) checkLimit() error {
	if r.limit < 1 || r.limit > mostRecordings {
		return misused("--limit %d: write 1 to %d", r.limit, mostRecordings)
	}
	return nil
}

func (s *session) sessionsList() *cobra.Command {
	var r recordings
	cmd := &cobra.Command{
		Use: "list", Short: "List recorded sessions, the last begun first", Args: arguments(),
		Long: `List recorded sessions, the last begun first. The state "unended" is that of a session under way, or of one whose recording was cut off: it can be
played up to there.`,
		RunE: func(*cobra.Command, []string) error {
			if err := r.checkLimit(); err != nil {
				return err
			}
			store, err := r.open()
			if err != nil {
				return err
			}
			entries, err := store.List(r.limit, r.keep(s.Now()))
			if err != nil {
				return failed("%v", err)
			}
			tree := list{}
			for _, e := range entries {
				tree = append(tree, sessionTree(e))
			}
			return s.print(object{{"sessions", tree}}, func(p *page) { laySessions(p, entries) })
		},
	}
	r.common(cmd)
	r.filters(cmd, 50, "how many at most")
	return cmd
}

func sessionTree(e recording.Entry) object {
	a := e.About
	return object{
		{"id", a.ID}, {"session", a.Session}, {"began", a.Began}, {"who", a.Who}, {"target", a.Target}, {"account", a.Account}, {"gateway", a.Gateway}, {"client", a.Client},
		{"kind", a.Kind}, {"seconds", e.Seconds}, {"bytes", e.Bytes}, {"state", string(e.State)}, {"partial", a.Partial}, {"file", e.File},
	}
}

func laySessions(p *page, entries []recording.Entry) {
	if len(entries) == 0 {
		p.line("No recorded session.")
		return
	}
	rows := make([][]string, len(entries))
	for i, e := range entries {
		a := e.About
		rows[i] = []string{a.ID, a.Began, a.Who, a.Account, a.Target, a.Kind, (time.Duration(e.Seconds) * time.Second).String(), string(e.State)}
	}
	p.table([]string{"ID", "BEGAN", "WHO", "ACCOUNT", "TARGET", "KIND", "LENGTH", "STATE"}, rows)
}

func (s *session) sessionsPlay() *cobra.Command {
	var r recordings
	var speed float64
	var idle time.Duration
	var text bool
	cmd := &cobra.Command{
		Use: "play ID", Short: "Play a recorded session in the terminal", Args: arguments("ID"),
		Long: `Play a recorded session in the terminal, at its pace. The terminal should be as large as the recorded one was; its size is told at the beginning.
Sequences that would do more than draw (set the title or the clipboard, make the terminal answer) are left out.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if speed < 0.01 || speed > 1000 {
				return misused("--speed %g: write 0.01 to 1000", speed)
			}
			if idle < 0 {
				return misused("--idle-limit %v: write a time that is not negative; 0 for pauses as they were", idle)
			}
			store, err := r.open()
			if err != nil {
				return err
			}
			reader, err := r.find(store, args[0])
			if err != nil {
				return failed("%v", err)
			}
			defer reader.Close()
			if reader.Older() {
				fmt.Fprintln(s.Err, "holdfast: the recording is of an older format, in which only its beginning is bound to who, where and when; the rest could be another's of the same session")
			}
			if text {
				err = reader.Text(s.Out)
			} else {
				h := reader.Header
				fmt.Fprintln(s.Err, clean(fmt.Sprintf("%s: %s as %s on %s, %dx%d", h.Session.Began, h.Session.Who, h.Session.Account, h.Session.Target, h.Width, h.Height)))
				err = reader.Play(cmd.Context(), s.Out, recording.PlayOptions{Speed: speed, IdleLimit: idle, Wait: wait})
			}
			switch {
			case errors.Is(err, context.Canceled):
				return nil // whoever has seen enough
			case err != nil:
				return failed("%v", err)
			case !reader.Whole():
				fmt.Fprintln(s.Err, "holdfast: the recording has no end: the session is under way, or was cut off here")
			}
			return nil
		},
	}
	r.common(cmd)
	r.keys(cmd)
	cmd.Flags().Float64Var(&speed, "speed", 1, "how many times as fast")
	cmd.Flags().DurationVar(&idle, "idle-limit", 2*time.Second, "no pause is longer than this; 0 for pauses as they were")
	cmd.Flags().BoolVar(&text, "text", false, "write the text that was shown, line by line with its time, and do not play")
	hideOutput(cmd)
	return cmd
}

func (r *recordings) find(store *recording.Store, id string) (*recording.Reader, error) {
	identities, err := recording.ReadIdentities(r.identities)
	if err != nil {
		return nil, err
	}
	return store.Find(id, identities)
}

func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (s *session) sessionsSearch() *cobra.Command {
	var r recordings
	cmd := &cobra.Command{
		Use: "search TEXT", Short: "Find a text in recorded sessions", Args: arguments("TEXT"),
		Long: `Find a text in what recorded sessions showed, in the commands that they ran and in the names of the files that they transferred, whatever the case of its letters. The
last session is searched first. What could not be read is named on standard error.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return misused("the text to search for is empty")
			}
			if err := r.checkLimit(); err != nil {
				return err
			}
			store, err := r.open()
			if err != nil {
				return err
			}
			identities, err := recording.ReadIdentities(r.identities)
			if err != nil {
				return failed("%v", err)
			}
			var found []recording.Found
			err = store.Search(cmd.Context(), identities, r.keep(s.Now()), recording.Containing(args[0]), func(f recording.Found) bool {
				found = append(found, f)
				return len(found) < r.limit
			}, func(e recording.Entry, err error) {
				fmt.Fprintln(s.Err, clean(fmt.Sprintf("holdfast: %s was not searched: %v", e.About.ID, err)))
			})
			if err != nil {
				return failed("%v", err)
			}
			return s.print(foundTree(found), func(p *page) { layFound(p, found) })
		},
	}
	r.common(cmd)
	r.keys(cmd)
	r.filters(cmd, 100, "how many lines at most")
	return cmd
}

func foundTree(found []recording.Found) object {
	tree := list{}
	for _, f := range found {
		tree = append(tree, object{{"id", f.Entry.About.ID}, {"who", f.Entry.About.Who}, {"target", f.Entry.About.Target}, {"at_seconds", f.Line.At.Seconds()}, {"line", f.Line.Text}})
	}
	return object{{"lines", tree}}
}

func layFound(p *page, found []recording.Found) {
	if len(found) == 0 {
		p.line("Nothing was found.")
		return
	}
	rows := make([][]string, len(found))
	for i, f := range found {
		rows[i] = []string{f.Entry.About.ID, f.Entry.About.Who, f.Entry.About.Target, f.Line.At.Truncate(time.Second).String(), f.Line.Text}
	}
	p.table([]string{"ID", "WHO", "TARGET", "AT", "LINE"}, rows)
}
