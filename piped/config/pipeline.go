package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Pipeline is spec.pipeline: stages that run one after another.
type Pipeline struct {
	// Stages run one after another.
	Stages []Stage `yaml:"stages"`
}

// completePipeline completes the pipeline and what only a pipeline gives a
// meaning. A pipeline without stages is none.
func (g *Generic) completePipeline(d *strict.Document, kind Kind) {
	if g.Pipeline != nil && len(g.Pipeline.Stages) == 0 {
		d.Warnf("pipeline", "has no stages, so every deployment is a quick sync")
		g.Pipeline = nil
	}
	if g.Pipeline != nil {
		g.Pipeline.complete(d, kind)
		return
	}
	if g.Planner.AlwaysUsePipeline {
		d.Problemf("planner.alwaysUsePipeline", "needs a pipeline with at least one stage")
	}
	if !g.CommitMatcher.Pipeline.IsZero() {
		d.Warnf("commitMatcher.pipeline", "has no effect without a pipeline")
	}
}

func (p *Pipeline) complete(d *strict.Document, kind Kind) {
	known := slices.Sorted(maps.Keys(kind.StageOptions()))
	ids := map[string]int{}
	applies := false
	for i := range p.Stages {
		s, at := &p.Stages[i], stageAt(i)
		if !slices.Contains(known, s.Name) {
			d.Problemf(at+".name", "%s", unknownStage(s.Name, known, kind))
		}
		s.complete(d, at, kind)
		s.completeID(d, at, i)
		if first, twice := ids[s.ID]; twice {
			d.Problemf(at+".id", "%q is the ID of pipeline.stages[%d] too; IDs must differ", s.ID, first)
		}
		ids[s.ID] = i
		applies = applies || slices.Contains(kind.Applies, s.Name) || s.Name == deploy.StageCustomSync
	}
	if !applies {
		d.Warnf("pipeline", "changes nothing that stays; expected a stage %s", strict.Alternatives(kind.Applies))
	}
}

// unknownStage says what is wrong with a stage's name.
func unknownStage(name string, known []string, kind Kind) string {
	switch name {
	case "":
		return "required; expected the name of a stage, such as " + kind.Applies[0]
	case deploy.StageRollback, deploy.StageScriptRunRollback, deploy.StageCustomSyncRollback:
		return fmt.Sprintf("%s is not allowed in a pipeline: it is added to every deployment that can be rolled back", name)
	}
	if near := strict.Suggest(name, known); near != "" {
		return fmt.Sprintf("unknown stage %q%s", name, near)
	}
	return fmt.Sprintf("unknown stage %q; expected one of %s", name, strings.Join(known, ", "))
}

func stageAt(i int) string { return fmt.Sprintf("pipeline.stages[%d]", i) }
