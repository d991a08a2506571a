package app

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	clusterlive "github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/deploy"
)

// ObjectEvents implements control.Objects.
func (l liveObjects) ObjectEvents(ctx context.Context, app deploy.Application, q deploy.EventQuery) (deploy.ObjectEvents, error) {
	ctx, stop := context.WithTimeout(ctx, liveTimeout)
	defer stop()
	var out deploy.ObjectEvents
	kept, err := l.sets(ctx, app)
	if err != nil {
		return out, err
	}
	about, problems, err := l.about(ctx, app, kept, q.Object)
	if err != nil {
		return out, err
	}
	inClusters := map[string][]deploy.ObjectRef{}
	for o := range descendants(about) {
		inClusters[o.Cluster] = append(inClusters[o.Cluster], o.Object)
	}
	for name, refs := range inClusters {
		events, unread, err := l.eventsIn(ctx, app, name, refs)
		if err != nil && name == app.Provider {
			return out, kept.redact(err)
		}
		if err != nil { // a former cluster
			unread = append(unread, err.Error())
		}
		out.Events, problems = append(out.Events, events...), append(problems, unread...)
	}
	slices.SortStableFunc(out.Events, func(a, b deploy.ObjectEvent) int { return b.LastAt.Compare(a.LastAt) })
	shown := min(len(out.Events), q.Limit)
	out.Events, out.LeftOut, out.Incomplete = out.Events[:shown], len(out.Events)-shown, kept.Text(firstOf(problems))
	for i := range out.Events {
		out.Events[i].Message = kept.Text(out.Events[i].Message)
	}
	return out, nil
}

// about returns the object that a selector selects, with its children, or all objects for nil;
// and why some may be missing.
func (l liveObjects) about(ctx context.Context, app deploy.Application, kept keptSets, s *deploy.ObjectSelector) ([]deploy.LiveObject, []string, error) {
	if s != nil {
		found, err := l.find(ctx, app, kept, *s)
		return []deploy.LiveObject{found.LiveObject}, nil, err
	}
	items, err := l.store.Inventory(ctx, app.ID)
	if err != nil {
		return nil, nil, err
	}
	state, err := l.state(ctx, app, kept, items, clusterlive.Request{Children: true, All: true})
	if state.Incomplete != "" {
		return state.Objects, []string{state.Incomplete}, err
	}
	return state.Objects, nil, err
}

// eventsIn reads the events of objects in one cluster, as the account of the application.
func (l liveObjects) eventsIn(ctx context.Context, app deploy.Application, provider string, refs []deploy.ObjectRef) ([]deploy.ObjectEvent, []string, error) {
	held, release, err := holdFor(l.clusters, l.tenants, provider, app)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	return clusterlive.Events(ctx, held.Cluster, refs)
}

// PodLog implements control.Objects.
func (l liveObjects) PodLog(ctx context.Context, app deploy.Application, q deploy.PodLogQuery, send func(deploy.PodLog) error) error {
	kept, err := l.sets(ctx, app)
	if err != nil {
		return err
	}
	log, head, err := l.openLog(ctx, app, kept, q)
	if err != nil {
		return kept.redact(err)
	}
	defer log.Close()
	if err := send(head); err != nil {
		return err
	}
	for {
		lines, err := log.Next()
		if len(lines) > 0 {
			for i := range lines {
				lines[i] = kept.line(lines[i])
			}
			if err := send(deploy.PodLog{Lines: lines}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && q.Follow && ctx.Err() == nil:
			return send(deploy.PodLog{End: kept.Text(log.End(ctx))})
		case errors.Is(err, io.EOF):
			return context.Cause(ctx)
		case err != nil:
			return kept.redact(cmp.Or(context.Cause(ctx), err))
		}
	}
}

// openLog opens the log of a pod of the application. head contains the pod and the container.
func (l liveObjects) openLog(ctx context.Context, app deploy.Application, kept keptSets, q deploy.PodLogQuery) (log *clusterlive.Log, head deploy.PodLog, err error) {
	limited, stop := context.WithTimeout(ctx, liveTimeout)
	defer stop()
	found, err := l.find(limited, app, kept, q.Pod)
	if err != nil {
		return nil, head, err
	}
	held, release, err := holdFor(l.clusters, l.tenants, found.Cluster, app)
	if err != nil {
		return nil, head, err
	}
	defer release() // what is open continues
	if log, err = clusterlive.OpenLog(ctx, held.Cluster, found.Object, q); err != nil {
		return nil, head, err
	}
	return log, deploy.PodLog{Cluster: found.Cluster, Pod: found.Object, UID: found.UID, Container: log.Container}, nil
}

// line redacts a line of a log, and limits its length.
func (k keptSets) line(line deploy.PodLogLine) deploy.PodLogLine {
	if line.Text = k.Text(line.Text); len(line.Text) > clusterlive.MaxLogLine {
		line.Text, line.Truncated = line.Text[:clusterlive.MaxLogLine], true
	}
	return line
}

// OnLiveChange implements control.Objects.
func (l liveObjects) OnLiveChange(app deploy.Application, changed func()) (stop func()) {
	return l.clusters.liveChanges.subscribe(app.ID, changed)
}
