package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
)

// readMetadata decodes the value of a stage's metadata key into v, and reports whether the
// stage has recorded one.
func readMetadata(stage deploy.Stage, key string, v any) (found bool, err error) {
	text := stage.Metadata[key]
	if text == "" {
		return false, nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return false, fmt.Errorf("read %s in the metadata of stage %s: %w", key, stage.ID, err)
	}
	return true, nil
}

// saveMetadata stores v, encoded as JSON, under a metadata key of the running stage.
func saveMetadata(ctx context.Context, run deploy.StageRun, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s in the metadata of stage %s: %w", key, run.Stage.ID, err)
	}
	return run.SaveMetadata(ctx, map[string]string{key: string(text)})
}

// readOptions decodes the options of a stage into o. The error is of kind Invalid.
func readOptions(stage deploy.Stage, o any) error {
	if err := json.Unmarshal(stage.Options, o); err != nil {
		return deploy.Errorf(deploy.Invalid, "read the options of stage %s: %w", stage.ID, err)
	}
	return nil
}
