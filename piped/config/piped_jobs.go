package config

import (
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// EventWatcher is spec.eventWatcher: how events become commits. Repositories that
// it does not name are watched all the same.
type EventWatcher struct {
	// GitRepos are settings for repositories.
	GitRepos []EventWatcherRepository `yaml:"gitRepos"`
}

// EventWatcherRepository says which files below .pipe/ of a repository are read
// and how their commits are worded.
type EventWatcherRepository struct {
	// RepoID is the unique `repoId` of the repository.
	// Required.
	RepoID string `yaml:"repoId"`
	// CommitMessage is the commit message of the rules below `.pipe/`. `{{ .Value }}` and `{{
	// .EventName }}` are filled in.
	// Default: one that names the event.
	CommitMessage string `yaml:"commitMessage"`
	// Includes are patterns of the files below `.pipe/` that are read for rules, relative to it.
	// Default: all.
	Includes Patterns `yaml:"includes"`
	// Excludes are patterns of the files that are not read.
	// Default: none.
	Excludes Patterns `yaml:"excludes"`
}

// Of returns what is said of a repository; of one that is not named that all of its
// files are read.
func (w EventWatcher) Of(repoID string) EventWatcherRepository {
	for _, r := range w.GitRepos {
		if r.RepoID == repoID {
			return r
		}
	}
	return EventWatcherRepository{RepoID: repoID}
}

// Reads reports whether the file of that name, relative to .pipe/, is read.
func (r EventWatcherRepository) Reads(name string) bool {
	return (len(r.Includes) == 0 || r.Includes.MatchCombined(name)) && !r.Excludes.MatchCombined(name)
}

// PlanPreview is spec.planPreview: how previews are built.
type PlanPreview struct {
	// WorkerNum is how many previews are built at once.
	WorkerNum int `yaml:"workerNum"`
	// CommandHandleTimeout is how long a preview may take from its request, unless the request
	// says otherwise.
	CommandHandleTimeout time.Duration `yaml:"commandHandleTimeout"`
}

func defaultPlanPreview() PlanPreview {
	return PlanPreview{WorkerNum: 3, CommandHandleTimeout: 5 * time.Minute}
}

func (w EventWatcher) complete(d *strict.Document) EventWatcher {
	seen := names{d: d}
	for i, repo := range w.GitRepos {
		at := fmt.Sprintf("eventWatcher.gitRepos[%d]", i)
		seen.add(at, "repoId", repo.RepoID)
		checkMessage(d, at+".commitMessage", repo.CommitMessage)
	}
	return w
}

func (p PlanPreview) complete(d *strict.Document) PlanPreview {
	defaults := defaultPlanPreview()
	atLeastZero(d, "planPreview.workerNum", &p.WorkerNum, defaults.WorkerNum)
	atLeastZero(d, "planPreview.commandHandleTimeout", &p.CommandHandleTimeout, defaults.CommandHandleTimeout)
	return p
}

// atLeastZero reports a value below 0; 0 stands for the default, as in PipeCD.
func atLeastZero[T int | time.Duration](d *strict.Document, path string, value *T, otherwise T) {
	switch {
	case *value < 0:
		d.Problemf(path, "expected 0 (for %v) or more, found %v", otherwise, *value)
	case *value == 0:
		*value = otherwise
	}
}
