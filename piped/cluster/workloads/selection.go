package workloads

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
)

// Selection selects workloads of a cluster. The zero value selects all.
type Selection struct {
	Namespaces        []string // names, or patterns with *; empty: all
	ExcludeNamespaces []string // likewise; empty: none
	Labels            labels.Selector
}

// selects reports whether a workload is selected; a nil Selection selects none.
func (s *Selection) selects(namespace string, set map[string]string) bool {
	return s != nil && (len(s.Namespaces) == 0 || matchesAny(s.Namespaces, namespace)) && !matchesAny(s.ExcludeNamespaces, namespace) &&
		(s.Labels == nil || s.Labels.Matches(labels.Set(set)))
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return matched && err == nil
	})
}

// All returns the selection of an Observer of all workloads, nil for one of those with the
// application label.
func (o *Observer) All() *Selection { return o.selection }

// WatchAll starts to watch all workloads with their revisions, and waits until the caches are
// filled. Where the agent may not watch the whole cluster, it watches the namespaces that the
// selection names without a pattern.
func (o *Observer) WatchAll(ctx context.Context) (byKind map[string]*watch.Scope, revisions []*watch.Scope, err error) {
	byKind = map[string]*watch.Scope{}
	for kind := range workloadResources {
		if byKind[kind], err = o.Watch(kind); err != nil {
			return nil, nil, err
		}
	}
	sets, err := o.WatchReplicaSets()
	if err == nil {
		err = o.revisions.Start()
	}
	if err != nil {
		return nil, nil, err
	}
	revisions = []*watch.Scope{sets, o.revisions}
	scopes := slices.Clone(revisions)
	for _, w := range byKind {
		scopes = append(scopes, w)
	}
	for _, scope := range scopes {
		for _, name := range o.selection.Namespaces {
			if strings.ContainsAny(name, `*?[\`) {
				continue
			}
			if err := scope.Cover(name); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, scope := range scopes {
		if err := scope.Filled(ctx); err != nil {
			return nil, nil, err
		}
	}
	return byKind, revisions, nil
}

// WithRevisions adds the cached ControllerRevisions of a StatefulSet or DaemonSet to a
// snapshot. It does nothing unless all workloads are watched.
func (o *Observer) WithRevisions(ctx context.Context, rec deploy.Rollout, s rollout.Snapshot) (rollout.Snapshot, error) {
	if o.selection == nil || s.Workload == nil || s.Workload.Kind == rollout.KindDeployment {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, FillTimeout)
	defer cancel()
	if err := o.revisions.FilledIn(ctx, rec.Workload.Namespace); err != nil {
		return s, err
	}
	var err error
	s.Revisions, err = ownedBy(o.revisions, s.Workload.UID)
	return s, err
}

// ConfirmRevisions is Confirm with the ControllerRevisions of a StatefulSet or DaemonSet.
func (o *Observer) ConfirmRevisions(ctx context.Context, rec deploy.Rollout) (rollout.Snapshot, error) {
	s, err := o.Confirm(ctx, rec)
	if err != nil || s.Workload == nil || s.Workload.Kind == rollout.KindDeployment {
		return s, err
	}
	list, err := o.cluster.Dynamic().Resource(controllerRevisions).Namespace(rec.Workload.Namespace).List(ctx, metav1.ListOptions{LabelSelector: s.Workload.Selector})
	if err != nil {
		return s, o.cluster.Classify(fmt.Errorf("list the revisions of %s: %w", rec.Workload, err))
	}
	for i := range list.Items {
		r, err := rollout.ControllerRevisionFrom(&list.Items[i])
		if err != nil {
			return s, err
		}
		s.Revisions = append(s.Revisions, r)
	}
	return s, nil
}
