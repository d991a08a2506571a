package trigger

import (
	"cmp"
	"context"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// newChain returns the chain that a deployment of the application beginner begins: a block
// for the deployment itself, then one for each matcher. A block contains the enabled
// applications of all repositories that match now, except beginner.
func (w *watcher) newChain(ctx context.Context, c *config.Chain, beginner string) (*deploy.Chain, error) {
	if w.roster == nil {
		apps, _, err := w.Store.ListApplications(ctx, store.ApplicationQuery{})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(apps, func(a, b deploy.Application) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
		w.roster = slices.DeleteFunc(apps, deploy.Application.IsPreview)
	}
	chain := &deploy.Chain{ID: w.NewID(), Blocks: []deploy.ChainBlock{{}}}
	for _, m := range c.Applications {
		var b deploy.ChainBlock
		for _, app := range w.roster {
			if app.ID == beginner || !matches(m, app, w.Kinds) {
				continue
			}
			b.Nodes = append(b.Nodes, deploy.ChainNode{ApplicationID: app.ID, ApplicationName: app.Name, CommandID: w.NewID()})
		}
		chain.Blocks = append(chain.Blocks, b)
	}
	return chain, nil
}

// matches reports whether an application has the name, the kind and all labels of a
// matcher. An empty field matches every application. Unlike PipeCD, it evaluates labels.
func matches(m config.ChainMatcher, app deploy.Application, kinds config.Kinds) bool {
	kind, known := kinds.Find(m.Kind)
	if m.Name != "" && m.Name != app.Name || m.Kind != "" && (!known || kind.Name != app.Kind) {
		return false
	}
	for name, value := range m.Labels {
		if got, ok := app.Labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}
