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
	// Name is "" when it is not written: then the application is called as it was
	// registered, or as its directory.
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Description string            `yaml:"description"`
	// EnvironmentURL is where what is deployed can be seen; "" when nobody says.
	EnvironmentURL string  `yaml:"environmentURL"`
	Planner        Planner `yaml:"planner"`
	// CommitMatcher decides between quick sync and pipeline by the commit's subject.
	CommitMatcher CommitMatcher `yaml:"commitMatcher"`
	// Pipeline is nil when there is none: every deployment is a quick sync.
	Pipeline *Pipeline `yaml:"pipeline"`
	Trigger  Trigger   `yaml:"trigger"`
	// Timeout bounds a deployment from its start to the end of its last stage.
	Timeout time.Duration `yaml:"timeout"`
	// PlatformProvider names where to deploy; "" means the only provider.
	PlatformProvider string         `yaml:"platformProvider"`
	Rollback         Rollback       `yaml:"rollback"`
	DriftDetection   DriftDetection `yaml:"driftDetection"`
	Notification     Notification   `yaml:"notification"`
	PostSync         PostSync       `yaml:"postSync"`
	SyncWindows      SyncWindows    `yaml:"syncWindows"` // empty: always
	Encryption       *Encryption    `yaml:"encryption"`  // nil when not written
	Attachment       *Attachment    `yaml:"attachment"`  // nil when not written
	EventWatcher     []EventRule    `yaml:"eventWatcher"`
}

// Planner is spec.planner.
type Planner struct {
	AlwaysUsePipeline bool `yaml:"alwaysUsePipeline"`
	// AutoRollback is nil when not written; see Application.AutoRollback.
	AutoRollback *bool `yaml:"autoRollback"`
	// CommitMatcher is another place for Generic.CommitMatcher, which holds what is
	// written here.
	CommitMatcher CommitMatcher `yaml:"commitMatcher"`
}

// CommitMatcher is spec.commitMatcher: what a commit's subject must match,
// anywhere in it, for a quick sync or for the pipeline. Pipeline is the stronger.
type CommitMatcher struct {
	QuickSync Regexp `yaml:"quickSync"`
	Pipeline  Regexp `yaml:"pipeline"`
}

// Rollback is spec.rollback.
type Rollback struct {
	// Timeout bounds the rollback; it is Timeout of the deployment when not written.
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
func (g *Generic) complete(d *strict.Document) {
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
	for i, w := range g.EventWatcher {
		w.complete(d, fmt.Sprintf("eventWatcher[%d]", i))
	}
	g.PostSync.complete(d)
	g.SyncWindows.complete(d)
	g.DriftDetection.complete(d)
	g.Notification.complete(d)
	g.completePipeline(d)
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
