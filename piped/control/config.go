package control

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Configurations provides the configurations in effect, without secrets.
type Configurations interface {
	AgentConfig() deploy.EffectiveConfig
	// ApplicationConfig returns the configuration of an application at the last known head. It
	// fetches nothing. Unavailable: the repository has not been read yet.
	ApplicationConfig(ctx context.Context, app deploy.Application) (deploy.EffectiveConfig, error)
}

// maxConfig bounds the YAML of a configuration.
const maxConfig = maxResponse / 2

// GetAgentConfig returns the configuration of the agent.
func (s *controlService) GetAgentConfig(context.Context, *controlv1.GetAgentConfigRequest) (*controlv1.GetAgentConfigResponse, error) {
	if s.configurations == nil {
		return &controlv1.GetAgentConfigResponse{}, nil
	}
	c := s.configurations.AgentConfig()
	if len(c.YAML) > maxConfig {
		return nil, configTooLarge(len(c.YAML))
	}
	return &controlv1.GetAgentConfigResponse{Yaml: text(c.YAML), LoadedAtMs: millis(c.LoadedAt), Refused: text(c.Error)}, nil
}

// GetApplicationConfig returns the configuration of an application.
func (s *controlService) GetApplicationConfig(ctx context.Context, req *controlv1.GetApplicationConfigRequest) (*controlv1.GetApplicationConfigResponse, error) {
	app, err := s.registered(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	if s.configurations == nil {
		return &controlv1.GetApplicationConfigResponse{}, nil
	}
	c, err := s.configurations.ApplicationConfig(ctx, app)
	if err == nil && len(c.YAML) > maxConfig {
		err = configTooLarge(len(c.YAML))
	}
	if err != nil {
		return nil, err
	}
	m := &controlv1.GetApplicationConfigResponse{Yaml: text(c.YAML), Commit: text(c.Commit), Path: text(c.Path), Error: text(c.Error)}
	for _, w := range c.Warnings {
		m.Warnings = append(m.Warnings, text(w))
	}
	return m, nil
}

func configTooLarge(size int) error {
	return deploy.Errorf(deploy.Illegal, "the configuration has %d bytes as YAML, and %d can be shown: read the file", size, maxConfig)
}
