package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

const (
	defaultWait         = strict.Duration(time.Minute)
	defaultStageTimeout = 6 * time.Hour
)

// WaitOptions are those of WAIT.
type WaitOptions struct {
	// Duration is how long the stage waits.
	Duration strict.Duration `yaml:"duration" json:"duration"`
	// SkipOn is another place for the stage's `skipOn`. Same keys as `skipOn`.
	// Default: none.
	SkipOn SkipOptions `yaml:"skipOn" json:"-"`
}

// WaitApprovalOptions are those of WAIT_APPROVAL.
type WaitApprovalOptions struct {
	// Approvers are those who may approve: subjects of users and API keys, and groups of users as
	// `group:NAME`.
	// Default: anyone.
	Approvers []string `yaml:"approvers" json:"approvers"`
	// MinApproverNum is how many different users must approve.
	MinApproverNum int `yaml:"minApproverNum" json:"minApproverNum"`
	// RequireOther excludes the approvals of those who requested the deployment, or who are author
	// or committer of what it deploys.
	// Not in PipeCD.
	RequireOther bool `yaml:"requireOther" json:"requireOther,omitempty"`
	// Timeout is the time after which the stage fails.
	Timeout time.Duration `yaml:"timeout" json:"-"`
	// SkipOn is another place for the stage's `skipOn`. Same keys as `skipOn`.
	// Default: none.
	SkipOn SkipOptions `yaml:"skipOn" json:"-"`
}

// ScriptRunOptions are those of SCRIPT_RUN.
type ScriptRunOptions struct {
	// Run is the script.
	// Required, or `onRollback`.
	Run string `yaml:"run" json:"run"`
	// Env are additional environment variables.
	// Default: none.
	Env map[string]string `yaml:"env" json:"env,omitempty"`
	// OnRollback is the script that undoes `run` when the deployment is rolled back, if the stage
	// has begun.
	// Default: none.
	OnRollback string `yaml:"onRollback" json:"-"`
	// OnInterrupted is what happens to a script that ended because the agent did: the stage fails,
	// or the script runs again.
	// Not in PipeCD.
	OnInterrupted OnInterrupted `yaml:"onInterrupted" json:"onInterrupted"`
	// Timeout ends the script; the stage fails. It limits `onRollback`, too.
	Timeout time.Duration `yaml:"timeout" json:"-"`
	// SkipOn is another place for the stage's `skipOn`. Same keys as `skipOn`.
	// Default: none.
	SkipOn SkipOptions `yaml:"skipOn" json:"-"`
}

// OnInterrupted says what becomes of a script that the agent's end interrupted.
type OnInterrupted string

// The ways: it fails the stage, or runs once more.
const (
	InterruptedFails  OnInterrupted = "fail"
	InterruptedReruns OnInterrupted = "rerun"
)

// Values lists what an OnInterrupted may be.
func (OnInterrupted) Values() []string {
	return []string{string(InterruptedFails), string(InterruptedReruns)}
}

// CustomSyncOptions are those of CUSTOM_SYNC.
type CustomSyncOptions struct {
	// Run is the script.
	// Required.
	Run string `yaml:"run" json:"run"`
	// Envs are additional environment variables.
	// Default: none.
	Envs map[string]string `yaml:"envs" json:"envs,omitempty"`
	// Timeout ends the script; the stage fails.
	Timeout time.Duration `yaml:"timeout" json:"-"`
}

func (o *WaitOptions) common() (*time.Duration, *SkipOptions)         { return nil, &o.SkipOn }
func (o *WaitApprovalOptions) common() (*time.Duration, *SkipOptions) { return &o.Timeout, &o.SkipOn }
func (o *ScriptRunOptions) common() (*time.Duration, *SkipOptions)    { return &o.Timeout, &o.SkipOn }
func (o *CustomSyncOptions) common() (*time.Duration, *SkipOptions)   { return &o.Timeout, nil }

func (o *WaitOptions) complete(d *strict.Document, at string) {
	switch {
	case o.Duration < 0:
		d.Problemf(at+".duration", "expected a duration above 0, found %s", o.Duration)
	case o.Duration == 0:
		o.Duration = defaultWait // as in PipeCD
	}
}

func (o *WaitApprovalOptions) complete(d *strict.Document, at string) {
	distinct, groups := map[string]bool{}, false
	for i, a := range o.Approvers {
		switch prefix := a[:min(len(a), len(deploy.ApproverGroup))]; {
		case strings.TrimSpace(a) == "":
			d.Problemf(fmt.Sprintf("%s.approvers[%d]", at, i), "expected the name of someone who may approve, found an empty one")
		case strings.EqualFold(prefix, deploy.ApproverGroup):
			groups = true
			if name := a[len(prefix):]; prefix != deploy.ApproverGroup || name == "" || name != strings.TrimSpace(name) {
				d.Problemf(fmt.Sprintf("%s.approvers[%d]", at, i), "expected a group such as group:payments, found %q", a)
			}
		}
		distinct[a] = true
	}
	switch {
	case o.MinApproverNum < 1:
		d.Problemf(at+".minApproverNum", "expected 1 or more, found %d", o.MinApproverNum)
	case len(distinct) > 0 && !groups && o.MinApproverNum > len(distinct): // a group can have any number of members
		d.Problemf(at+".minApproverNum", "expected at most %d, which is how many approvers there are, found %d", len(distinct), o.MinApproverNum)
	}
}

func (o *ScriptRunOptions) complete(d *strict.Document, at string) {
	if strings.TrimSpace(o.Run) == "" && strings.TrimSpace(o.OnRollback) == "" {
		d.Problemf(at+".run", "required; expected the script to run, or one to run on rollback in onRollback")
	}
	checkEnv(d, at+".env", o.Env)
}

func (o *CustomSyncOptions) complete(d *strict.Document, at string) {
	if strings.TrimSpace(o.Run) == "" {
		d.Problemf(at+".run", "required; expected the script to run")
	}
	checkEnv(d, at+".envs", o.Envs)
}

// checkEnv reports names that no environment can have.
func checkEnv(d *strict.Document, at string, env map[string]string) {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			d.Problemf(at, "expected the name of an environment variable, found %q", name)
		}
		if strings.Contains(value, "\x00") {
			d.Problemf(at+"."+name, "expected a text without a NUL character")
		}
	}
}
