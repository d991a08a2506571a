package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
)

// LastCustomSyncs returns the CUSTOM_SYNC stages of the running state, if the pipeline of the
// target itself has one: as in PipeCD, running them again undoes it. It returns none if the
// running state cannot be read any more; the stage's log explains the consequence. running loads
// that state, and is called only if there is a last success.
func LastCustomSyncs(ctx context.Context, app deploy.Application, target *config.Application, running func(context.Context) (*source.Source, error)) ([]config.Stage, error) {
	if app.LastSuccessful == nil || len(customSyncs(target)) == 0 {
		return nil, nil
	}
	loaded, err := running(ctx)
	switch {
	case deploy.IsKind(err, deploy.NotFound), deploy.IsKind(err, deploy.Invalid):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("load the running commit %s: %w", deploy.ShortHash(app.LastSuccessful.Trigger.Commit.Hash), err)
	}
	return customSyncs(loaded.Config), nil
}

// customSyncs returns the CUSTOM_SYNC stages of the pipeline, if any.
func customSyncs(cfg *config.Application) []config.Stage {
	if cfg.Pipeline == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(cfg.Pipeline.Stages), func(s config.Stage) bool { return s.Name != deploy.StageCustomSync })
}

// UndoScripts returns the stages that undo the scripts of a pipeline, in the pipeline's
// order. All CUSTOM_SYNC stages are undone together, in place of the first, by
// repeating lastSyncs, those of the last success.
func UndoScripts(p *config.Pipeline, lastSyncs []config.Stage) ([]deploy.Stage, error) {
	var out []deploy.Stage
	for _, s := range p.Stages {
		switch o := s.With.(type) {
		case *config.ScriptRunOptions:
			if o.OnRollback == "" {
				continue
			}
			undo, err := undoScript(s, o)
			if err != nil {
				return nil, err
			}
			out = append(out, undo)
		case *config.CustomSyncOptions:
			undo, err := repeatSyncs(s, lastSyncs)
			if err != nil {
				return nil, err
			}
			out, lastSyncs = append(out, undo...), nil
		}
	}
	return out, nil
}

// undoScript returns the stage that undoes a SCRIPT_RUN.
func undoScript(s config.Stage, o *config.ScriptRunOptions) (deploy.Stage, error) {
	metadata, err := undoMetadata(s, o.OnRollback, o.Env)
	if err != nil {
		return deploy.Stage{}, err
	}
	metadata[deploy.MetaOnInterrupted] = string(o.OnInterrupted)
	return deploy.Stage{
		ID: deploy.ScriptRollbackID + "-" + s.ID, Name: deploy.StageScriptRunRollback, Desc: "Undo what stage " + s.ID + " did",
		Rollback: true, Timeout: s.Timeout, Metadata: metadata,
	}, nil
}

// repeatSyncs returns the stages that repeat lastSyncs, the CUSTOM_SYNC stages of the
// last success, to undo stage s.
func repeatSyncs(s config.Stage, lastSyncs []config.Stage) ([]deploy.Stage, error) {
	var out []deploy.Stage
	for _, last := range lastSyncs {
		o := last.With.(*config.CustomSyncOptions) // the option type follows from the stage name
		metadata, err := undoMetadata(s, o.Run, o.Envs)
		if err != nil {
			return nil, err
		}
		out = append(out, deploy.Stage{
			ID: deploy.CustomSyncRollbackID + "-" + last.ID, Name: deploy.StageCustomSyncRollback,
			Desc: "Run " + last.Name + " of the last success again", Rollback: true, Timeout: last.Timeout, Metadata: metadata,
		})
	}
	return out, nil
}

// undoMetadata returns the metadata of a stage whose script undoes stage s.
func undoMetadata(s config.Stage, script string, env map[string]string) (map[string]string, error) {
	metadata := map[string]string{deploy.MetaBaseStage: s.ID, deploy.MetaOnRollback: script}
	if len(env) > 0 {
		text, err := json.Marshal(env)
		if err != nil {
			return nil, fmt.Errorf("encode the environment of what undoes stage %s: %w", s.ID, err)
		}
		metadata[deploy.MetaScriptEnv] = string(text)
	}
	return metadata, nil
}
