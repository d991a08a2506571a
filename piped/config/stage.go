package config

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Stage is one stage of a pipeline.
type Stage struct {
	// ID is unique in the pipeline.
	// Default: `stage-<index>`.
	ID string `yaml:"id"`
	// Name is one of the stages of [stages.md](stages.md).
	// Required.
	//
	// A key of StageOptions.
	Name string `yaml:"name"`
	// Desc is shown.
	Desc string `yaml:"desc"`
	// Timeout limits one run of the stage. The stage fails after it.
	// Default: none, or that of the options.
	//
	// It is what timeout of the stage or of its options says; they do not differ.
	Timeout time.Duration `yaml:"timeout"`
	// SkipOn skips the stage, whatever it is. PipeCD's v1 has it here; `with.skipOn` is the same.
	//
	// It is what skipOn of the stage or of its options says; they do not differ.
	SkipOn SkipOptions `yaml:"skipOn"`
	// With is the options of the stage: see [stages.md](stages.md).
	//
	// With is a pointer to the options of the stage's kind, complete with defaults and never nil.
	// As JSON it is what deploy.Stage.Options carry.
	With any `yaml:"with"`
}

// StageOptions returns the options of every stage that may stand in a pipeline of the
// kind, by stage name, each as a pointer that holds the defaults.
func (k Kind) StageOptions() map[string]any {
	all := k.Stages()
	all[deploy.StageWait] = &WaitOptions{Duration: defaultWait}
	all[deploy.StageWaitApproval] = &WaitApprovalOptions{Approvers: []string{}, MinApproverNum: 1, Timeout: defaultStageTimeout}
	all[deploy.StageScriptRun] = &ScriptRunOptions{OnInterrupted: InterruptedFails, Timeout: defaultStageTimeout}
	all[deploy.StageAnalysis] = &AnalysisOptions{}
	all[deploy.StageCustomSync] = &CustomSyncOptions{Timeout: defaultStageTimeout}
	return all
}

// Choice implements strict.Choice: the name decides what with is read into.
func (s *Stage) Choice() (key, value string) { return "name", s.Name }

// options is implemented by the options of the stages that every kind has.
type options interface {
	// complete fills what depends on other fields and reports what makes no
	// sense to d; at is the path of the options.
	complete(d *strict.Document, at string)
	// common returns what every stage can have; nil is what this one cannot.
	common() (timeout *time.Duration, skipOn *SkipOptions)
}

// complete fills what depends on other fields and reports every value that makes
// no sense to d; at is the stage's path.
func (s *Stage) complete(d *strict.Document, at string, kind Kind) {
	if s.With == nil {
		s.With = kind.StageOptions()[s.Name]
	}
	if d.Has(at+".timeout") && s.Timeout <= 0 {
		d.Problemf(at+".timeout", "expected a duration above 0, found %s", s.Timeout)
	}
	s.SkipOn.complete(d, at+".skipOn")
	o, ok := s.With.(options)
	if !ok {
		return
	}
	o.complete(d, at+".with")
	timeout, skipOn := o.common()
	if skipOn != nil {
		skipOn.complete(d, at+".with.skipOn")
		s.mergeSkipOn(d, at, *skipOn)
	}
	if timeout != nil {
		s.mergeTimeout(d, at, timeout)
	}
	s.checkDuration(d, at)
}

// checkDuration reports a timeout that would always end the stage.
func (s *Stage) checkDuration(d *strict.Document, at string) {
	var duration time.Duration
	switch o := s.With.(type) {
	case *WaitOptions:
		duration = time.Duration(o.Duration)
	case *AnalysisOptions:
		duration = time.Duration(o.Duration)
	}
	if s.Timeout > 0 && duration >= s.Timeout {
		d.Problemf(at+".timeout", "is %s, which always ends the stage before its duration of %s", s.Timeout, duration)
	}
}

// mergeSkipOn makes the stage's skipOn, as PipeCD's v1 has it, and that of its options
// one.
func (s *Stage) mergeSkipOn(d *strict.Document, at string, option SkipOptions) {
	switch {
	case !d.Has(at + ".with.skipOn"):
	case d.Has(at+".skipOn") && !s.SkipOn.equal(option):
		d.Problemf(at+".with.skipOn", "differs from skipOn of the stage; keep one of them")
	default:
		s.SkipOn = option
	}
}

// mergeTimeout makes the stage's timeout and that of its options one.
func (s *Stage) mergeTimeout(d *strict.Document, at string, option *time.Duration) {
	own, below := d.Has(at+".timeout"), d.Has(at+".with.timeout")
	switch {
	case below && *option <= 0:
		d.Problemf(at+".with.timeout", "expected a duration above 0, found %s", *option)
	case own && below && s.Timeout != *option:
		d.Problemf(at+".with.timeout", "is %s, but the stage's timeout is %s; keep one of them", *option, s.Timeout)
	case own:
		*option = s.Timeout
	default:
		s.Timeout = *option
	}
}

// completeID names a stage that has no ID and refuses those that the planner
// gives to its own stages.
func (s *Stage) completeID(d *strict.Document, at string, i int) {
	if s.ID == "" {
		s.ID = fmt.Sprintf("stage-%d", i)
	}
	switch {
	case s.ID == deploy.RollbackID || strings.HasPrefix(s.ID, deploy.ScriptRollbackID) || strings.HasPrefix(s.ID, deploy.CustomSyncRollbackID):
		d.Problemf(at+".id", "%q is the ID of a stage that runs on rollback; choose another", s.ID)
	case len(s.ID) > maxStageID || strings.ContainsFunc(s.ID, func(r rune) bool { return !unicode.IsPrint(r) }):
		d.Problemf(at+".id", "expected at most %d printable characters", maxStageID)
	}
}

// maxStageID is the longest ID of a stage, in bytes.
const maxStageID = 100
