package config

import (
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// Retention is spec.retention: how long what is over is kept.
type Retention struct {
	// Disabled stores everything without limit.
	Disabled bool `yaml:"disabled"`
	// Deployments is how long deployments are stored after their end, and commands after their
	// answer; `168h` or more.
	Deployments time.Duration `yaml:"deployments"`
	// KeepPerApplication is how many deployments of each application are stored whatever their
	// age; 1 or more.
	KeepPerApplication int `yaml:"keepPerApplication"`
	// StageLogs is how long logs are stored after the end of their deployment; `24h` or more, and
	// no longer than deployments. If deployments are stored for less than the default, that is the
	// default.
	StageLogs time.Duration `yaml:"stageLogs"`
	// Audit is how long records of the audit log are stored; `24h` or more.
	Audit time.Duration `yaml:"audit"`
}

// Younger data is still in use: traces and notifications are retried for a day, and
// the results of a commit are reported on its pull request until all have ended.
const (
	leastDeployments = 7 * 24 * time.Hour
	leastStageLogs   = 24 * time.Hour
	leastAudit       = 24 * time.Hour
)

func defaultRetention() Retention {
	return Retention{Deployments: 365 * 24 * time.Hour, KeepPerApplication: 20, StageLogs: 90 * 24 * time.Hour, Audit: 400 * 24 * time.Hour}
}

// complete shortens the default of logs to what is kept of deployments.
func (r Retention) complete(d *strict.Document) Retention {
	const everything = "retention.disabled: true keeps everything"
	if r.Deployments < leastDeployments {
		d.Problemf("retention.deployments", "expected %s or more, found %s; %s", leastDeployments, r.Deployments, everything)
	}
	if r.KeepPerApplication < 1 {
		d.Problemf("retention.keepPerApplication", "expected 1 or more, found %d", r.KeepPerApplication)
	}
	if !d.Has("retention.stageLogs") {
		r.StageLogs = min(r.StageLogs, r.Deployments)
	}
	switch {
	case r.StageLogs < leastStageLogs && d.Has("retention.stageLogs"):
		d.Problemf("retention.stageLogs", "expected %s or more, found %s; %s", leastStageLogs, r.StageLogs, everything)
	case r.StageLogs > r.Deployments:
		d.Problemf("retention.stageLogs", "logs go with their deployment: expected no more than deployments, which is %s, found %s", r.Deployments, r.StageLogs)
	}
	if r.Audit < leastAudit {
		d.Problemf("retention.audit", "expected %s or more, found %s; %s", leastAudit, r.Audit, everything)
	}
	return r
}
