package opentofu

import (
	"github.com/c785c783/piped/piped/config/platform"
	"github.com/c785c783/piped/piped/config/strict"
)

// Names of the stages, as in PipeCD.
const (
	StageSync  = "TERRAFORM_SYNC"
	StagePlan  = "TERRAFORM_PLAN"
	StageApply = "TERRAFORM_APPLY"
)

// maxRetries bounds the retries of an apply.
const maxRetries = 20

// PlanOptions are those of TERRAFORM_PLAN.
type PlanOptions struct {
	// ExitOnNoChanges ends the deployment with success if the plan changes nothing.
	ExitOnNoChanges bool `yaml:"exitOnNoChanges" json:"exitOnNoChanges"`
}

// ApplyOptions are those of TERRAFORM_APPLY and TERRAFORM_SYNC.
type ApplyOptions struct {
	// Retries is how many times a failed apply is repeated, with a new plan of what is left.
	Retries int `yaml:"retries" json:"retries"`
	// ConfirmDestroyAbove is the number of resources that may be destroyed or replaced without
	// `pipectl application sync --confirm-destroy`.
	// Default: no limit. Not in PipeCD.
	ConfirmDestroyAbove *int `yaml:"confirmDestroyAbove" json:"confirmDestroyAbove,omitempty"`
}

// StageOptions returns the options of the stages, by stage name, each as a pointer that holds
// the defaults.
func StageOptions() map[string]any {
	return map[string]any{StageSync: &ApplyOptions{}, StagePlan: &PlanOptions{}, StageApply: &ApplyOptions{}}
}

func (o ApplyOptions) complete(d *strict.Document, field string) {
	if o.Retries < 0 || o.Retries > maxRetries {
		d.Problemf(field+".retries", "expected a number from 0 to %d, found %d", maxRetries, o.Retries)
	}
	if o.ConfirmDestroyAbove != nil && *o.ConfirmDestroyAbove < 0 {
		d.Problemf(field+".confirmDestroyAbove", "expected 0 or more, found %d", *o.ConfirmDestroyAbove)
	}
}

// checkStages reports what makes no sense in the stages of a pipeline: each plan is for one
// apply, and a second apply needs its own.
func checkStages(d *strict.Document, stages []platform.Stage) {
	planned, applied := false, false
	for _, s := range stages {
		switch o := s.Options.(type) {
		case *PlanOptions:
			planned, applied = true, false
		case *ApplyOptions:
			o.complete(d, s.At+".with")
			if s.Name == StageApply && planned && applied {
				d.Problemf(s.At+".name", "the plan was applied by the stage before; expected another %s in between", StagePlan)
			}
			applied = true
		}
	}
}
