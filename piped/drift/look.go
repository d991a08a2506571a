package drift

import (
	"context"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes"
)

// suspect is an object that the watches leave in doubt.
type suspect struct {
	*tracked
	key                  string
	uid, resourceVersion string // as the watch has it, "" if it does not
	confirm              bool   // the API server is asked in any case
}

// unmarked is an object that is as recorded, of which no mark is.
type unmarked struct {
	*tracked
	key, live string
}

// look judges the objects as far as the watches tell, which costs no call: the same
// object that nobody has written since is as it was applied.
func (j *judgement) look(context.Context) error {
	byCluster := map[string][]string{}
	for k, t := range j.expected.objects {
		if t.wanted {
			byCluster[t.cluster] = append(byCluster[t.cluster], k)
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(byCluster)) {
		members, since, err := j.Clusters.Members(cluster)
		if err != nil {
			j.blind = append(j.blind, blindness{cluster, byCluster[cluster], since, err.Error()})
			continue
		}
		j.expected.follow(cluster, members)
		j.lookIn(cluster, members, byCluster[cluster])
	}
	return nil
}

func (j *judgement) lookIn(cluster string, members Members, keys []string) {
	unready := map[string]*blindness{} // by what keeps the watch from telling
	for _, k := range keys {
		t := j.expected.objects[k]
		// A kind that is not served has no objects.
		if since, err := members.Ready(t.ref); err != nil && !deploy.IsKind(err, deploy.NotFound) {
			b := unready[err.Error()]
			if b == nil {
				b = &blindness{cluster: cluster, since: since, why: err.Error()}
				unready[err.Error()] = b
			}
			b.keys = append(b.keys, k)
			continue
		}
		m, live := members.Get(t.ref)
		j.lookAt(k, t, m, live)
	}
	for _, why := range slices.Sorted(maps.Keys(unready)) {
		j.blind = append(j.blind, *unready[why])
	}
}

// lookAt judges one object.
func (j *judgement) lookAt(k string, t *tracked, m kubernetes.Member, live bool) {
	j.looked++
	inSync := live && !t.doubted && kubernetes.InSync(deploy.InventoryItem{UID: t.uid, OwnedHash: t.ownedHash, Mark: t.mark}, m)
	known, wasJudged := j.judged[k]
	same := wasJudged && known.uid == m.UID && known.resourceVersion == m.ResourceVersion
	was := suspect{t, k, m.UID, m.ResourceVersion, j.swept[k]}
	switch {
	case t.ignored || live && m.Ignored:
		j.accepted[k] = true
		delete(j.judged, k)
	case was.confirm, same && known.drift != nil && j.asked, !same && !inSync && (live || !t.expires):
		j.suspects[t.cluster] = append(j.suspects[t.cluster], was)
	case inSync:
		j.Observer.Judged(ByMetadata)
		delete(j.judged, k)
		if t.mark == "" {
			j.unmarked = append(j.unmarked, unmarked{t, k, m.Mark})
		}
	case same && known.drift != nil:
		j.found[k] = *known.drift
	}
}
