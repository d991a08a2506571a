package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// Generic is the part of an application's configuration that every kind of
// application has.
type Generic struct {
	// Name is the name of the application; names may repeat. Without it the application has the
	// name given to `application add`, else that of its directory.
	// Default: the directory's name.
	Name string `yaml:"name"`
	// Labels are shown, and select applications.
	Labels map[string]string `yaml:"labels"`
	// Description is shown.
	Description string `yaml:"description"`
	// EnvironmentURL is where users see what is deployed. Git hosts link to it.
	// Type: URL. Not in PipeCD.
	EnvironmentURL string `yaml:"environmentURL"`
	// Planner is how the strategy of a deployment is decided.
	Planner Planner `yaml:"planner"`
	// CommitMatcher decides between quick sync and pipeline by the commit's subject.
	CommitMatcher CommitMatcher `yaml:"commitMatcher"`
	// Pipeline is the list of stages. Without it every deployment is a quick sync.
	Pipeline *Pipeline `yaml:"pipeline"`
	// Trigger is what causes a deployment.
	Trigger Trigger `yaml:"trigger"`
	// Timeout limits a deployment from its start to the end of its last stage. The rollback does
	// not count.
	Timeout time.Duration `yaml:"timeout"`
	// PlatformProvider is the name of the platform provider to deploy to. An application that has
	// been assigned to a provider stays there when the agent gets another one.
	// Default: the only provider. Not in PipeCD.
	PlatformProvider string `yaml:"platformProvider"`
	// Rollback is settings of rollbacks.
	// Not in PipeCD.
	Rollback Rollback `yaml:"rollback"`
	// DriftDetection is which differences from Git are no drift.
	DriftDetection DriftDetection `yaml:"driftDetection"`
	// Notification is who is mentioned in notifications.
	Notification Notification `yaml:"notification"`
	// PostSync is what follows a successful deployment.
	PostSync PostSync `yaml:"postSync"`
	// SyncWindows are times in which deployments may start, or may not. With any `allow`,
	// deployments start inside of one only; `deny` wins.
	// Default: always. Not in PipeCD.
	SyncWindows SyncWindows `yaml:"syncWindows"`
	// Encryption fills files with decrypted secrets.
	//
	// It is nil when not written.
	Encryption *Encryption `yaml:"encryption"`
	// Attachment fills files with the text of other files.
	//
	// It is nil when not written.
	Attachment *Attachment `yaml:"attachment"`
	// Preview deploys pull requests that touch the application, each next to it. The agent needs
	// `spec.previews` for that.
	//
	// It is nil when not written.
	// Default: no previews. Not in PipeCD.
	Preview *Preview `yaml:"preview"`
	// EventWatcher is rules that write events into Git.
	EventWatcher []EventRule `yaml:"eventWatcher"`
}

// Planner is spec.planner.
type Planner struct {
	// AlwaysUsePipeline makes every deployment but a sync with a given strategy run the pipeline.
	// It needs a pipeline.
	AlwaysUsePipeline bool `yaml:"alwaysUsePipeline"`
	// AutoRollback rolls a failed deployment back.
	// Default: `true`.
	//
	// It is nil when not written; see Application.AutoRollback.
	AutoRollback *bool `yaml:"autoRollback"`
	// CommitMatcher is another place for `commitMatcher`. Same keys as `commitMatcher`.
	//
	// Generic.CommitMatcher holds what is written here.
	CommitMatcher CommitMatcher `yaml:"commitMatcher"`
}

// CommitMatcher is spec.commitMatcher: what a commit's subject must match,
// anywhere in it, for a quick sync or for the pipeline. Pipeline is the stronger.
type CommitMatcher struct {
	// QuickSync is for commits that are quick syncs: the expression must match somewhere in the
	// commit's subject.
	QuickSync Regexp `yaml:"quickSync"`
	// Pipeline is for commits that run the pipeline. It wins over `quickSync`.
	Pipeline Regexp `yaml:"pipeline"`
}

// Rollback is spec.rollback.
type Rollback struct {
	// Timeout limits a rollback.
	// Default: `timeout`.
	Timeout time.Duration `yaml:"timeout"`
}

func defaultGeneric() Generic {
	return Generic{
		Trigger: Trigger{
			OnOutOfSync: OnOutOfSync{Disabled: true, MinWindow: 5 * time.Minute},
			OnChain:     Switch{Disabled: true},
			Queue:       QueueNewest,
		},
		Timeout: 6 * time.Hour,
	}
}

// complete fills what depends on other fields and reports every value that
// makes no sense to d.
func (g *Generic) complete(d *strict.Document, kind Kind, kinds Kinds) {
	g.Name = strings.TrimSpace(g.Name)
	g.completeMatcher(d)
	if u, err := url.Parse(g.EnvironmentURL); g.EnvironmentURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		d.Problemf("environmentURL", "expected an address such as https://shop.example.com, found %q", g.EnvironmentURL)
	}
	if g.Timeout <= 0 {
		d.Problemf("timeout", "expected a duration above 0, found %s", g.Timeout)
	}
	if !d.Has("rollback.timeout") {
		g.Rollback.Timeout = g.Timeout
	} else if g.Rollback.Timeout <= 0 {
		d.Problemf("rollback.timeout", "expected a duration above 0, found %s", g.Rollback.Timeout)
	}
	if g.Trigger.OnOutOfSync.MinWindow < 0 {
		d.Problemf("trigger.onOutOfSync.minWindow", "expected a duration of 0 or more, found %s", g.Trigger.OnOutOfSync.MinWindow)
	}
	if g.Encryption != nil {
		g.Encryption.complete(d)
	}
	if g.Attachment != nil {
		g.Attachment.complete(d)
	}
	if g.Preview != nil {
		g.Preview.complete(d)
	}
	for i, w := range g.EventWatcher {
		w.complete(d, fmt.Sprintf("eventWatcher[%d]", i))
	}
	g.PostSync.complete(d, kinds)
	g.SyncWindows.complete(d)
	g.DriftDetection.complete(d)
	g.Notification.complete(d)
	g.completePipeline(d, kind)
}

// completeMatcher makes commitMatcher and planner.commitMatcher one.
func (g *Generic) completeMatcher(d *strict.Document) {
	one := func(name string, top, below *Regexp) {
		own, other := "commitMatcher."+name, "planner.commitMatcher."+name
		switch {
		case !d.Has(other):
		case d.Has(own) && top.String() != below.String():
			d.Problemf(other, "differs from %s; keep one of them", own)
		default:
			*top = *below
		}
	}
	one("quickSync", &g.CommitMatcher.QuickSync, &g.Planner.CommitMatcher.QuickSync)
	one("pipeline", &g.CommitMatcher.Pipeline, &g.Planner.CommitMatcher.Pipeline)
}
