package store_test

import (
	"context"
	"testing"
)

func TestStoreShrinksToOneOther(t *testing.T) {
	c := newCompany(t)
	c.start(c.options("node1"))
	c.client = c.open()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		c.reach(ctx, "node1", "node2", "node3")
		c.reach(ctx, "node2")
		if _, err := c.client.Commit(ctx, put("a", "last")); err != nil {
			t.Fatal(err)
		}
		c.reach(ctx, "node1")
	}
	t.Log(c.taken)
}
