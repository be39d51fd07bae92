package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReport shows what is printed for each way in which a test can end.
func TestReport(t *testing.T) {
	const in = `{"Action":"output","Package":"github.com/holdfast/holdfast/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"github.com/holdfast/holdfast/a","Test":"TestOne","Output":"quiet, since it passes\n"}
{"Action":"pass","Package":"github.com/holdfast/holdfast/a","Test":"TestOne","Elapsed":0.1}
{"Action":"output","Package":"github.com/holdfast/holdfast/a","Test":"TestTwo","Output":"    two_test.go:7: dig is not installed\n"}
{"Action":"output","Package":"github.com/holdfast/holdfast/a","Test":"TestTwo","Output":"--- SKIP: TestTwo (0.00s)\n"}
{"Action":"skip","Package":"github.com/holdfast/holdfast/a","Test":"TestTwo"}
{"Action":"output","Package":"github.com/holdfast/holdfast/a","Test":"TestUser","Output":"    a_test.go:1: === RUN   TestLab\n"}
{"Action":"output","Package":"github.com/holdfast/holdfast/a","Test":"TestUser","Output":"            lab_test.go:281: not root\n"}
{"Action":"output","Package":"github.com/holdfast/holdfast/a","Test":"TestUser","Output":"        --- SKIP: TestLab (0.00s)\n"}
{"Action":"pass","Package":"github.com/holdfast/holdfast/a","Test":"TestUser"}
{"Action":"pass","Package":"github.com/holdfast/holdfast/a","Elapsed":1.5}
{"Action":"output","Package":"github.com/holdfast/holdfast/b","Test":"TestThree","Output":"    three_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"github.com/holdfast/holdfast/b","Test":"TestThree"}
{"Action":"output","Package":"github.com/holdfast/holdfast/b","Output":"FAIL\n"}
{"Action":"output","Package":"github.com/holdfast/holdfast/b","Output":"exit status 1\n"}
{"Action":"fail","Package":"github.com/holdfast/holdfast/b","Elapsed":0.5}
{"Action":"skip","Package":"github.com/holdfast/holdfast/c"}
not an event
`
	const want = `ok    github.com/holdfast/holdfast/a                                   1.5 s
    three_test.go:9: got 1, want 2
exit status 1
FAIL  github.com/holdfast/holdfast/b                                   0.5 s
not an event

Skipped:
  dig is not installed
      a.TestTwo
  not root
      a.TestUser: TestLab

Failed:
  b.TestThree
  github.com/holdfast/holdfast/b

2 tests passed, 2 failed, 2 were skipped
`
	got, failed := play(t, in)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the report differs (-want +got):\n%s", diff)
	}
	if !failed {
		t.Error("a failed test does not fail the run")
	}
}

// TestFailures: each of these must fail the run, and the last must not.
func TestFailures(t *testing.T) {
	const passes = `{"Action":"pass","Package":"a","Test":"TestOne"}` + "\n"
	for _, c := range []struct {
		name, in string
		want     bool
	}{
		{"nothing ran", "", true},
		{"only text", "go: cannot find main module\n", true},
		{"a package does not build", passes + `{"Action":"build-fail","ImportPath":"b"}`, true},
		{"a package fails without a test that does", passes + `{"Action":"fail","Package":"a"}`, true},
		{"a module fails without a word", passes + `{"Action":"module-failed"}`, true},
		{"all pass", passes, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out, failed := play(t, c.in); failed != c.want {
				t.Errorf("failed is %v, want %v, in\n%s", failed, c.want, out)
			}
		})
	}
}

// TestACrash: a process that ends in the middle of a test says why in that test's output, and no event says that the test ended.
func TestACrash(t *testing.T) {
	in := `{"Action":"output","Package":"a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"SIGSEGV: segmentation violation\n"}
` + strings.Repeat(`{"Action":"output","Package":"a","Test":"TestOne","Output":"a goroutine\n"}`+"\n", crashLines) + `{"Action":"output","Package":"a","Output":"FAIL\ta\t0.5s\n"}
{"Action":"fail","Package":"a","Elapsed":0.5}
`
	want := `--- RUNNING when its process ended: a.TestOne
SIGSEGV: segmentation violation
` + strings.Repeat("a goroutine\n", crashLines-1) + `    (1 more lines)
FAIL  a                                                                0.5 s

Failed:
  a.TestOne (cut short)
  a

0 tests passed, 2 failed, 0 were skipped
`
	got, failed := play(t, in)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the report differs (-want +got):\n%s", diff)
	}
	if !failed {
		t.Error("a crash does not fail the run")
	}
}

func play(t *testing.T, in string) (out string, failed bool) {
	t.Helper()
	var text strings.Builder
	r := newReport(&text)
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	r.close()
	return text.String(), r.failed()
}
