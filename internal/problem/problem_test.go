package problem

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var (
	testKind  = Define(Kind{Code: "test.one", Severity: Warning, Meaning: "Something is wrong.", Remedy: "Make it right."})
	otherKind = Define(Kind{Code: "test.another", Severity: Error, Meaning: "Something else is wrong.", Remedy: "Make it right."})
)

var start = time.Unix(1000, 0)

func codes(list []Active) (out []string) {
	for _, a := range list {
		out = append(out, a.Kind.Code+" "+a.Subject)
	}
	return out
}

// A problem is present from the first time that it is set until it is cleared; its detail is the last one.
func TestBoard(t *testing.T) {
	var b Board
	b.Set(testKind, "b", "first", start)
	b.Set(testKind, "a", "", start)
	b.Is(true, otherKind, "z", "", start)
	b.Set(testKind, "b", "second", start.Add(time.Minute))
	if got := codes(b.List()); !slices.Equal(got, []string{"test.another z", "test.one a", "test.one b"}) {
		t.Errorf("listed: %q", got)
	}
	if last := b.List()[2]; last.Detail != "second" || !last.Since.Equal(start) {
		t.Errorf("set twice: %+v", last)
	}
	b.Clear(testKind, "b")
	b.Clear(testKind, "never set")
	b.Is(false, otherKind, "z", "", start)
	if got := codes(b.List()); !slices.Equal(got, []string{"test.one a"}) || b.Dropped() != 0 {
		t.Errorf("after clearing: %q, %d dropped", got, b.Dropped())
	}
}

// What does not fit is counted, and the board says that there is more, until there is room again.
func TestAFullBoardSaysSo(t *testing.T) {
	var b Board
	for i := range maxActive {
		b.Set(testKind, fmt.Sprint(i), "", start)
	}
	if got := b.List(); len(got) != maxActive || b.Dropped() != 0 {
		t.Fatalf("%d fit, %d were dropped", len(got), b.Dropped())
	}
	b.Set(otherKind, "one too many", "", start.Add(time.Minute))
	b.Set(otherKind, "one too many", "", start.Add(time.Hour))
	b.Set(testKind, "0", "the known ones go on", start.Add(time.Hour))
	list := b.List()
	full := slices.IndexFunc(list, func(a Active) bool { return a.Kind == Full })
	if len(list) != maxActive+1 || b.Dropped() != 2 || full < 0 {
		t.Fatalf("%d are listed, %d were dropped, at %d the board says that it is full", len(list), b.Dropped(), full)
	}
	if !list[full].Since.Equal(start.Add(time.Minute)) || list[full].Detail != "1024 problems are shown, and there are more" {
		t.Errorf("a full board says %+v", list[full])
	}
	b.Clear(testKind, "1")
	if got := b.List(); len(got) != maxActive-1 || slices.ContainsFunc(got, func(a Active) bool { return a.Kind == Full }) {
		t.Errorf("with room again %d are listed", len(got))
	}
	b.Set(otherKind, "one too many", "", start)
	if len(b.List()) != maxActive || b.Dropped() != 2 {
		t.Errorf("what fits again: %d listed, %d dropped", len(b.List()), b.Dropped())
	}
}

// A kind that is incomplete or taken is a fault of the program that shows at its start.
func TestDefineRefuses(t *testing.T) {
	for name, kind := range map[string]Kind{
		"a code that is taken": *testKind,
		"no code":              {Severity: Info, Meaning: "x", Remedy: "x"},
		"no meaning":           {Code: "test.x", Severity: Info, Remedy: "x"},
		"no remedy":            {Code: "test.x", Severity: Info, Meaning: "x"},
		"no severity":          {Code: "test.x", Meaning: "x", Remedy: "x"},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is taken", name)
				}
			}()
			Define(kind)
		}()
	}
	if !slices.IsSortedFunc(Kinds(), func(a, b *Kind) int {
		if a.Code < b.Code {
			return -1
		}
		return 1
	}) || !slices.Contains(Kinds(), testKind) {
		t.Error("the kinds are not sorted, or not all there")
	}
}
