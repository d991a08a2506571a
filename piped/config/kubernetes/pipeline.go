package kubernetes

import "github.com/c785c783/piped/piped/config/strict"

// Stage is a stage of a pipeline, whatever its kind.
type Stage struct {
	At      string // its path from the spec
	Name    string
	Options any // a value of StageOptions for the stages that only Kubernetes has
}

// completeStages fills what the stages take from the spec and reports to d what
// makes no sense in them.
func (s *Spec) completeStages(d *strict.Document, stages []Stage) {
	for _, stage := range stages {
		at := stage.At + ".with"
		switch o := stage.Options.(type) {
		case *SyncStageOptions:
			inherit(d, at+".prune", &o.Prune, s.QuickSync.Prune)
			inherit(d, at+".addVariantLabelToSelector", &o.AddVariantLabelToSelector, s.QuickSync.AddVariantLabelToSelector)
			s.completeThreshold(d, at, &o.ReadyThreshold)
		}
	}
}

func (s *Spec) completeThreshold(d *strict.Document, at string, p *strict.Percent) {
	inherit(d, at+".readyThreshold", p, s.ReadyThreshold)
}

// inherit sets a value that is not written to that of another field.
func inherit[T any](d *strict.Document, field string, value *T, from T) {
	if !d.Has(field) {
		*value = from
	}
}
