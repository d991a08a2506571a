package ownership

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// share decides what a live replica has to do so that every partition is held and all replicas
// hold the same number, or one more: which free partitions to take, and which of its own to
// hand over. Only as many change hands as must. All replicas decide alike from the same
// ownership.
func share(o deploy.Ownership, me string) (take, leave []deploy.Partition) {
	var mine, free []deploy.Partition
	held := map[string]int{}
	for _, t := range o.Terms {
		switch {
		case t.HeldBy == me:
			mine = append(mine, t.Partition)
			held[me]++
		case o.Live(t.HeldBy):
			held[t.HeldBy]++
		default:
			free = append(free, t.Partition)
		}
	}
	quota := quotas(o, held)
	if len(mine) > quota[me] {
		slices.SortFunc(mine, func(a, b deploy.Partition) int { return cmp.Compare(weight(me, b), weight(me, a)) })
		return nil, mine[quota[me]:]
	}
	for _, p := range free {
		if next := heaviest(o.Replicas, p, func(id string) bool { return held[id] < quota[id] }); next != "" {
			held[next]++
			if next == me {
				take = append(take, p)
			}
		}
	}
	return take, nil
}

// quotas returns how many partitions each live replica is to hold. Those that hold the most
// keep the one that is left over when the partitions are divided.
func quotas(o deploy.Ownership, held map[string]int) map[string]int {
	order := make([]string, len(o.Replicas))
	for i, r := range o.Replicas {
		order[i] = r.ID
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(a, b)) })
	quota := map[string]int{}
	for i, id := range order {
		quota[id] = len(o.Terms) / len(order)
		if i < len(o.Terms)%len(order) {
			quota[id]++
		}
	}
	return quota
}

// heaviest returns which of the replicas that may have a partition has the highest weight for
// it (rendezvous hashing), "" if none may.
func heaviest(replicas []deploy.Replica, p deploy.Partition, may func(id string) bool) (id string) {
	for _, r := range replicas {
		if may(r.ID) && (id == "" || weight(r.ID, p) > weight(id, p)) {
			id = r.ID
		}
	}
	return id
}

// weight is the random but fixed preference of a replica for a partition.
func weight(replica string, p deploy.Partition) uint64 {
	sum := sha256.Sum256(binary.AppendVarint([]byte(replica), int64(p)))
	return binary.BigEndian.Uint64(sum[:])
}
