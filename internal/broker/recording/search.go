package recording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Found is a line of a recording that a search was for.
type Found struct {
	Entry Entry
	Line  Line
}

// Search reads recordings from the last begun on, and calls found with each line that matches, until found says to stop. Lines are what the terminal
// showed, and what was noted beside it: commands and names of files. Recordings that cannot be read are passed to skipped with the reason, and the search goes on.
func (s *Store) Search(ctx context.Context, identities []age.Identity, keep func(Entry) bool, matches func(string) bool, found func(Found) bool, skipped func(Entry, error)) error {
	days, err := s.days()
	if err != nil {
		return err
	}
	for _, day := range days {
		entries, err := s.day(day)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if keep != nil && !keep(e) {
				continue
			}
			more, err := searchOne(ctx, s.path(e), identities, matches, func(l Line) bool { return found(Found{e, l}) })
			if err != nil {
				skipped(e, err)
			}
			if !more {
				return nil
			}
		}
	}
	return nil
}

// searchOne searches one recording. It returns false when found said to stop.
func searchOne(ctx context.Context, path string, identities []age.Identity, matches func(string) bool, found func(Line) bool) (bool, error) {
	r, err := Open(path, identities)
	if err != nil {
		return true, err
	}
	defer r.Close()
	if r.Header.Command != "" && matches(r.Header.Command) && !found(Line{Text: r.Header.Command}) {
		return false, nil
	}
	var shown, typed screen
	for ctx.Err() == nil {
		event, err := r.Next()
		if errors.Is(err, io.EOF) {
			return more(typed.leave(0, shown.leave(0, nil)), matches, found), nil
		}
		if err != nil {
			return true, err
		}
		var lines []Line
		switch event.Kind {
		case Output:
			lines = shown.write(event.At, event.Data)
		case Input:
			if r.Header.Session.Plain {
				lines = typed.write(event.At, event.Data)
			}
		case Marker:
			lines = []Line{{At: event.At, Text: event.Data}}
		}
		if !more(lines, matches, found) {
			return false, nil
		}
	}
	return false, ctx.Err()
}

func more(lines []Line, matches func(string) bool, found func(Line) bool) bool {
	for _, l := range lines {
		if matches(l.Text) && !found(l) {
			return false
		}
	}
	return true
}

// Containing matches lines that contain a text, whatever the case of its letters.
func Containing(text string) func(string) bool {
	text = strings.ToLower(text)
	return func(line string) bool { return strings.Contains(strings.ToLower(line), text) }
}

// typedMark stands before what was typed, where no terminal showed it.
const typedMark = "> "

// Text writes a whole recording as lines of text, each with its time.
func (r *Reader) Text(into io.Writer) error {
	var shown, typed screen
	write := func(lines []Line, mark string) error {
		for _, l := range lines {
			if _, err := fmt.Fprintf(into, "%9.3f  %s%s\n", l.At.Seconds(), mark, l.Text); err != nil {
				return err
			}
		}
		return nil
	}
	for {
		event, err := r.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(write(typed.leave(0, nil), typedMark), write(shown.leave(0, nil), ""))
		}
		if err != nil {
			return err
		}
		switch event.Kind {
		case Output:
			err = write(shown.write(event.At, event.Data), "")
		case Input:
			if r.Header.Session.Plain {
				err = write(typed.write(event.At, event.Data), typedMark)
			}
		case Marker:
			err = write([]Line{{event.At, "[" + unescaped(event.Data) + "]"}}, "")
		}
		if err != nil {
			return err
		}
	}
}

// unescaped makes a note fit for a terminal: a file need not have been written by us.
func unescaped(note string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, note)
}
