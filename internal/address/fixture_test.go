package address

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
	"github.com/holdfast/holdfast/internal/linux/neigh/neightest"
	"github.com/holdfast/holdfast/internal/problem"
)

func sortedAddresses[V any](m map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}

// node is a Reconciler on a kernel and a link in memory, whose background work runs in a bubble.
type node struct {
	*Reconciler
	t       *testing.T
	kernel  *linktest.Fake
	link    *neightest.Fake
	board   *problem.Board
	allowed bool
}

var (
	ownMAC0  = []byte{2, 0, 0, 0, 0, 2}
	ownMAC1  = []byte{2, 0, 0, 0, 0, 3}
	stranger = []byte{2, 0xbb, 0, 0, 0, 1}
)

// inBubble runs f with a node in virtual time; the background work runs if background is true.
func inBubble(t *testing.T, background bool, f func(n *node)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		n := &node{t: t, kernel: testKernel(), link: neightest.New(), board: &problem.Board{}, allowed: true}
		n.link.SetInterface("ext0", ownMAC0)
		n.link.SetInterface("ext1", ownMAC1)
		n.Reconciler = New(Options{
			Kernel: n.kernel, Announcer: n.link, Board: n.board, Permit: func() bool { return n.allowed },
		})
		if background {
			go func() {
				if err := n.Run(t.Context()); err != nil {
					t.Errorf("Run ended with %v", err)
				}
			}()
			synctest.Wait()
		}
		f(n)
	})
}

// set is Set with the context of the bubble.
func (n *node) set(d Desired) Result { return n.Set(n.t.Context(), d) }

// after lets time pass, and the background work settle.
func (n *node) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// there lists the addresses on the interfaces.
func (n *node) there() string {
	list, _ := n.kernel.Addresses()
	var texts []string
	for _, a := range list {
		texts = append(texts, a.Prefix.Addr().String())
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

func (n *node) wantThere(want string) {
	n.t.Helper()
	if got := n.there(); got != want {
		n.t.Errorf("on the interfaces are %q, want %q", got, want)
	}
}

// wantProblems checks the codes and subjects on the board.
func (n *node) wantProblems(want ...string) {
	n.t.Helper()
	var got []string
	for _, a := range n.board.List() {
		got = append(got, a.Kind.Code+" "+a.Subject)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		n.t.Errorf("problems are %q, want %q", got, want)
	}
}

func addresses(list []Holding) string {
	var texts []string
	for _, h := range list {
		texts = append(texts, h.Address.String())
	}
	return strings.Join(texts, " ")
}

func texts(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, " ")
}
