package live

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestOwnersInACircle: objects that own themselves, or one another, are returned once.
func TestOwnersInACircle(t *testing.T) {
	job := func(uid string) *node {
		n := &node{}
		n.UID, n.Object, n.Health = uid, deploy.ObjectRef{Kind: "Job", Name: uid}, deploy.HealthDegraded
		return n
	}
	for name, owners := range map[string]map[string]string{
		"of one":   {"a": "a"},
		"of two":   {"a": "b", "b": "a"},
		"of three": {"a": "b", "b": "c", "c": "a"},
	} {
		r := &reader{created: map[string][]*node{}}
		for child, owner := range owners {
			r.created[owner] = append(r.created[owner], job(child))
			r.nodes = append(r.nodes, job(child))
		}
		returned := 0
		for _, n := range r.nodes {
			r.adopt(n)
		}
		for _, n := range r.nodes {
			returned += countReturned(n.object(Request{Children: true})) - 1
		}
		if returned != len(owners) {
			t.Errorf("%s: %d children were returned, want each once", name, returned)
		}
	}
}

func countReturned(o deploy.LiveObject) int {
	n := 1
	for _, child := range o.Children {
		n += countReturned(child)
	}
	return n
}
