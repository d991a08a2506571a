package trigger

import "github.com/c785c783/piped/piped/deploy"

// pin keeps the commit of each application's last success reachable in the mirror, even
// after a force-push, because the next deployment is compared with it. It skips a commit
// that the mirror lacks, for example because the mirror was created again.
func (w *watcher) pin(apps map[string]deploy.Application) {
	for id, app := range apps {
		if app.LastSuccessful == nil {
			continue
		}
		hash := app.LastSuccessful.Trigger.Commit.Hash
		if w.pinned[id] == hash {
			continue
		}
		if err := w.repo.Git.Pin("success/"+id, hash); err != nil && !deploy.IsKind(err, deploy.NotFound) {
			w.log.Warn("cannot keep the commit of the last success", "app", app.Name, "commit", hash, "error", err)
		}
		w.pinned[id] = hash
	}
}
