package pullpreview

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// claimed returns the hosts of the previews of all repositories, with their pull requests.
func (p *Previewer) claimed(ctx context.Context) (map[string]pullRequest, error) {
	all, err := p.Store.PullPreviews(ctx, "", 0)
	out := map[string]pullRequest{}
	for _, known := range all {
		for _, app := range known.Applications {
			if app.Host != "" && known.Phase != deploy.PreviewRemoved {
				out[app.Host] = pullRequest{known.RepoID, known.Number}
			}
		}
	}
	return out, err
}

// claim gives the hosts of a preview to its pull request. One that is of the preview of another pull request
// is denied to its application.
func (p *Previewer) claim(r Repository, number int, want []wanted) {
	id := pullRequest{r.ID, number}
	for i := range want {
		w := &want[i]
		if w.host == "" {
			continue
		}
		if other, ok := p.claims[w.host]; ok && other != id {
			w.deny(deploy.Errorf(deploy.Invalid, "%s: spec.preview.host: %s is the host of the preview of pull request %s#%d: add the name of the application or of the repository to it",
				w.app.Git.ConfigPath(), w.host, other.repoID, other.number))
			continue
		}
		p.claims[w.host] = id
	}
}

// deny makes an application have no preview, also if it has one that was allowed when it was made.
func (w *wanted) deny(why error) { w.host, w.problem, w.denied = "", why, true }

// shareHosts denies an application of a preview the host of another one if the rules of both would have no
// defined order.
func (pl *plan) shareHosts() {
	for i := range pl.apps {
		w := &pl.apps[i]
		at := slices.IndexFunc(pl.apps[:i], func(o wanted) bool { return o.host != "" && o.host == w.host && (o.route.OwnHost || w.route.OwnHost) })
		if at >= 0 {
			w.deny(deploy.Errorf(deploy.Invalid, "%s: spec.preview.host: %s is the host of %s, too, and Istio merges VirtualServices of one host in no defined order: give each of them a host of its own",
				w.app.Git.ConfigPath(), w.host, pl.apps[at].base))
		}
	}
}

// hostOf returns the host of the preview of an application.
func (p *Previewer) hostOf(w *wanted, number int) (string, error) {
	host, err := p.Settings.HostOf(w.preview, number)
	if err != nil {
		err = deploy.Errorf(deploy.Invalid, "%s: spec.preview.host: %w", w.app.Git.ConfigPath(), err)
	}
	return host, err
}
