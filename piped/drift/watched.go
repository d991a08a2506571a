package drift

import (
	"context"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/deploy"
)

// suspect is an object that must be compared with the API server.
type suspect struct {
	*tracked
	key                  string
	uid, resourceVersion string // from the watch, "" if it has none
	confirm              bool   // force a dry run
}

// unmarked is an object in sync whose inventory item has no mark yet.
type unmarked struct {
	*tracked
	key, live string // live is the mark of the live object
}

// checkWatched evaluates objects by their watched metadata, without API calls. An
// object that was not written since its apply is in sync.
func (e *evaluation) checkWatched(context.Context) error {
	byCluster := map[string][]string{}
	for k, t := range e.expected.objects {
		if t.wanted {
			byCluster[t.cluster] = append(byCluster[t.cluster], k)
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(byCluster)) {
		members, since, err := e.Clusters.Members(cluster)
		if err != nil {
			e.outages = append(e.outages, outage{cluster, byCluster[cluster], since, err.Error()})
			continue
		}
		e.expected.follow(cluster, members)
		e.checkCluster(cluster, members, byCluster[cluster])
	}
	return nil
}

func (e *evaluation) checkCluster(cluster string, members Members, keys []string) {
	unready := map[string]*outage{} // by reason
	for _, k := range keys {
		t := e.expected.objects[k]
		// A kind that the cluster does not serve has no objects.
		if since, err := members.Ready(t.ref); err != nil && !deploy.IsKind(err, deploy.NotFound) {
			b := unready[err.Error()]
			if b == nil {
				b = &outage{cluster: cluster, since: since, why: err.Error()}
				unready[err.Error()] = b
			}
			b.keys = append(b.keys, k)
			continue
		}
		m, there := members.Get(t.ref)
		e.checkObject(k, t, m, there)
	}
	for _, why := range slices.Sorted(maps.Keys(unready)) {
		e.outages = append(e.outages, *unready[why])
	}
}

// checkObject evaluates one expected object. It adds the object to e.suspects if the API
// server must be asked, and to e.found if an earlier comparison of the same version found
// drift. there is false if the object does not exist; m is then zero.
func (e *evaluation) checkObject(k string, t *tracked, m live.Member, there bool) {
	e.checked++
	inSync := there && !t.doubted && live.InSync(deploy.InventoryItem{UID: t.uid, OwnedHash: t.ownedHash, Mark: t.mark}, m)
	known, compared := e.results[k]
	same := compared && known.uid == m.UID && known.resourceVersion == m.ResourceVersion
	was := suspect{t, k, m.UID, m.ResourceVersion, e.swept[k]}
	switch {
	case t.ignored || there && m.Ignored:
		e.accepted[k] = true
		delete(e.results, k)
	case was.confirm, same && known.drift != nil && e.interactive, !same && !inSync && (there || !t.expires):
		e.suspects[t.cluster] = append(e.suspects[t.cluster], was)
	case inSync:
		e.Metrics.Evaluated(ByMetadata)
		delete(e.results, k)
		if t.mark == "" {
			e.unmarked = append(e.unmarked, unmarked{t, k, m.Mark})
		}
	case same && known.drift != nil:
		e.found[k] = *known.drift
	}
}
