package config

import (
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// EventWatcher is spec.eventWatcher: how events become commits.
type EventWatcher struct {
	CheckInterval time.Duration            `yaml:"checkInterval"`
	GitRepos      []EventWatcherRepository `yaml:"gitRepos"`
}

// EventWatcherRepository says which files below .pipe/ of a repository are read
// and how their commits are worded.
type EventWatcherRepository struct {
	RepoID        string   `yaml:"repoId"`
	CommitMessage string   `yaml:"commitMessage"`
	Includes      Patterns `yaml:"includes"`
	Excludes      Patterns `yaml:"excludes"`
}

// PlanPreview is spec.planPreview: how previews are worked off.
type PlanPreview struct {
	WorkerNum              int           `yaml:"workerNum"`
	CommandQueueBufferSize int           `yaml:"commandQueueBufferSize"`
	CommandCheckInterval   time.Duration `yaml:"commandCheckInterval"`
	CommandHandleTimeout   time.Duration `yaml:"commandHandleTimeout"`
}

func defaultEventWatcher() EventWatcher { return EventWatcher{CheckInterval: time.Minute} }

func defaultPlanPreview() PlanPreview {
	return PlanPreview{WorkerNum: 3, CommandQueueBufferSize: 10, CommandCheckInterval: 5 * time.Second, CommandHandleTimeout: 5 * time.Minute}
}

func (w EventWatcher) complete(d *strict.Document) EventWatcher {
	atLeastZero(d, "eventWatcher.checkInterval", &w.CheckInterval, defaultEventWatcher().CheckInterval)
	seen := names{d: d}
	for i, repo := range w.GitRepos {
		seen.add(fmt.Sprintf("eventWatcher.gitRepos[%d]", i), "repoId", repo.RepoID)
	}
	return w
}

func (p PlanPreview) complete(d *strict.Document) PlanPreview {
	defaults := defaultPlanPreview()
	atLeastZero(d, "planPreview.workerNum", &p.WorkerNum, defaults.WorkerNum)
	atLeastZero(d, "planPreview.commandQueueBufferSize", &p.CommandQueueBufferSize, defaults.CommandQueueBufferSize)
	atLeastZero(d, "planPreview.commandCheckInterval", &p.CommandCheckInterval, defaults.CommandCheckInterval)
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
