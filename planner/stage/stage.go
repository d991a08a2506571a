// Package stage converts the pipeline of a configuration into the stages of a deployment, for
// every kind of application.
package stage

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// metaApprovers is the key of Stage.Metadata that lists the approvers for display, as
// in PipeCD.
const metaApprovers = "Approvers"

// OfPipeline returns the stages of a pipeline without those of its rollback. Each requires the one
// before it.
func OfPipeline(p *config.Pipeline) (out []deploy.Stage, err error) {
	for i, s := range p.Stages {
		converted, err := convert(s)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			converted.Requires = []string{out[i-1].ID}
		}
		out = append(out, converted)
	}
	return out, nil
}

// convert converts a stage of the configuration, except for its position in the
// pipeline.
func convert(s config.Stage) (out deploy.Stage, err error) {
	out = deploy.Stage{ID: s.ID, Name: s.Name, Desc: s.Desc, Visible: true, Timeout: s.Timeout}
	if out.Options, err = json.Marshal(s.With); err != nil {
		return out, fmt.Errorf("encode the options of stage %s: %w", s.ID, err)
	}
	if !s.SkipOn.IsZero() {
		if out.SkipOn, err = json.Marshal(s.SkipOn); err != nil {
			return out, fmt.Errorf("encode skipOn of stage %s: %w", s.ID, err)
		}
	}
	if approval, ok := s.With.(*config.WaitApprovalOptions); ok && len(approval.Approvers) > 0 {
		out.Metadata = map[string]string{metaApprovers: strings.Join(approval.Approvers, ",")}
	}
	return out, nil
}
