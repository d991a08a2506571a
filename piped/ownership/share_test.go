package ownership

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// table is the ownership that live replicas see, and what they do with it.
type table struct{ deploy.Ownership }

func newTable() *table {
	t := &table{}
	for p := range deploy.Partitions {
		t.Terms = append(t.Terms, deploy.HeldTerm{Term: deploy.Term{Partition: deploy.Partition(p)}})
	}
	return t
}

func (t *table) join(id string) {
	t.Replicas = append(t.Replicas, deploy.Replica{ID: id})
	slices.SortFunc(t.Replicas, func(a, b deploy.Replica) int { return cmp.Compare(a.ID, b.ID) })
}

func (t *table) die(id string) {
	t.Replicas = slices.DeleteFunc(t.Replicas, func(r deploy.Replica) bool { return r.ID == id })
}

// converge lets the replicas act in random order until none changes anything, and returns how
// many partitions a live replica has handed over.
func (t *table) converge(test *testing.T, random *rand.Rand) (moved int) {
	for quiet, rounds := 0, 0; quiet < len(t.Replicas); rounds++ {
		if rounds > 1000 {
			test.Fatal("the replicas do not agree")
		}
		quiet++
		for _, i := range random.Perm(len(t.Replicas)) {
			id := t.Replicas[i].ID
			take, leave := share(t.Ownership, id)
			for _, p := range take {
				if t.Live(t.Terms[p].HeldBy) {
					test.Fatalf("%s wants partition %d of %s, which is alive", id, p, t.Terms[p].HeldBy)
				}
				t.Terms[p].HeldBy = id
			}
			for _, p := range leave {
				if t.Terms[p].HeldBy != id {
					test.Fatalf("%s hands over partition %d of %s", id, p, t.Terms[p].HeldBy)
				}
				t.Terms[p].HeldBy = ""
				moved++
			}
			if len(take)+len(leave) > 0 {
				quiet = 0
			}
		}
	}
	return moved
}

func (t *table) counts() map[string]int {
	counts := map[string]int{}
	for _, term := range t.Terms {
		counts[term.HeldBy]++
	}
	return counts
}

// TestShare: after replicas join and leave, live replicas hold every partition, each the same
// number or one more. They hand over no more than the share of the replicas that joined.
func TestShare(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		o := newTable()
		for step := range 20 {
			joined := 0
			if alive := len(o.Replicas); alive == 0 || alive < 9 && random.IntN(2) == 0 {
				o.join(fmt.Sprintf("%08x", random.Uint32()))
				joined = 1
			} else if alive > 1 {
				o.die(o.Replicas[random.IntN(alive)].ID)
			}
			moved := o.converge(t, random)
			alive := len(o.Replicas)
			if limit := joined * (deploy.Partitions/alive + 1); moved > limit {
				t.Errorf("seed %d, step %d: %d partitions changed hands between live replicas, at most %d must", seed, step, moved, limit)
			}
			for id, n := range o.counts() {
				if !o.Live(id) || n < deploy.Partitions/alive || n > deploy.Partitions/alive+1 {
					t.Fatalf("seed %d, step %d: %q holds %d of %d partitions, with %d replicas", seed, step, id, n, deploy.Partitions, alive)
				}
			}
		}
	}
}

// TestPartitionOf: keys like those of the agent spread over the partitions, and stay where they
// were in earlier versions.
func TestPartitionOf(t *testing.T) {
	counts := map[deploy.Partition]int{}
	for i := range 64 * 100 {
		counts[deploy.PartitionOf(fmt.Sprintf("application-%d", i))]++
	}
	for p, n := range counts {
		if p < 0 || p >= deploy.Partitions || n < 50 || n > 150 { // 5 standard deviations of 10
			t.Errorf("partition %d has %d keys, about 100 are its share", p, n)
		}
	}
	const webPartition = 57 // sha256sum of "web" begins with 4b5e57f6eb2f42b9
	if p := deploy.PartitionOf("web"); p != webPartition {
		t.Errorf("web is in partition %d, was in %d", p, webPartition)
	}
}
