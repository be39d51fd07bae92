package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	const in = `goos: linux
pkg: example.com/a
BenchmarkPick/round_robin/7-2   	1000	     30.5 ns/op	       0 B/op	       0 allocs/op
BenchmarkPick/round_robin/7-2   	1000	     99.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkPick/round_robin/7-2   	1000	     40.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkWrite-2   	  10	   1532000 ns/op	     1.032 write-p50-ms	     29.38 rss-MB	 10240 B/op
PASS
`
	const want = `| benchmark | measured | median | lowest | highest |
|---|---|--:|--:|--:|
| Pick/round_robin/7 | time | 40 ns | 30.5 ns | 99 ns |
|  | memory | 0 B | 0 B | 0 B |
|  | allocations | 0 | 0 | 0 |
| Write | time | 1.53 ms | 1.53 ms | 1.53 ms |
|  | write-p50 | 1.03 ms | 1.03 ms | 1.03 ms |
|  | rss-MB | 29.4 | 29.4 | 29.4 |
|  | memory | 10 KiB | 10 KiB | 10 KiB |
`
	results, err := read(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	write(&out, results)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWrongNumber(t *testing.T) {
	if _, err := read(strings.NewReader("BenchmarkA-2 10 fast ns/op\n")); err == nil {
		t.Error("a word was taken for a number")
	}
}
