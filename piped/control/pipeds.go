package control

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Agent describes this agent and encrypts with its key.
type Agent interface {
	Describe() deploy.Agent
	// Encrypt encrypts plaintext for use in an application's configuration. Illegal:
	// the agent has no keys.
	Encrypt(plaintext []byte) (string, error)
}

// agentRecord stores the agent settings made through the API. UpdateAgent announces when the
// agent is disabled or enabled.
type agentRecord interface {
	Agent(ctx context.Context) (deploy.AgentRecord, error)
	UpdateAgent(ctx context.Context, fn func(*deploy.AgentRecord)) (deploy.AgentRecord, error)
}

// checkPipedID rejects the ID of another agent.
func (s *apiService) checkPipedID(id string) error {
	if id == s.convert.pipedID {
		return nil
	}
	return status.Error(codes.NotFound, "Piped is not found")
}

// GetPiped returns this agent.
func (s *apiService) GetPiped(ctx context.Context, req *apiservice.GetPipedRequest) (*apiservice.GetPipedResponse, error) {
	if err := s.checkPipedID(req.PipedId); err != nil {
		return nil, err
	}
	record, err := s.store.Agent(ctx)
	if err != nil {
		return nil, err
	}
	return &apiservice.GetPipedResponse{Piped: s.convert.piped(s.agent.Describe(), record)}, nil
}

// RegisterPiped always fails: the agent serves only itself.
func (s *apiService) RegisterPiped(ctx context.Context, req *apiservice.RegisterPipedRequest) (*apiservice.RegisterPipedResponse, error) {
	record, err := s.store.Agent(ctx)
	if err != nil {
		return nil, err
	}
	if req.Name == s.convert.name(s.agent.Describe(), record) {
		return nil, deploy.Errorf(deploy.Exists, "%q is this agent, with the ID %s", req.Name, s.convert.pipedID)
	}
	return nil, deploy.Errorf(deploy.Illegal, "this agent is its own control plane and registers no other: start %q with its own configuration, and use the control API it serves", req.Name)
}

// UpdatePiped changes the displayed name and description of the agent.
func (s *apiService) UpdatePiped(ctx context.Context, req *apiservice.UpdatePipedRequest) (*apiservice.UpdatePipedResponse, error) {
	return &apiservice.UpdatePipedResponse{}, s.updateAgent(ctx, req.PipedId, func(a *deploy.AgentRecord) {
		a.Name, a.Description = req.Name, req.Desc
	})
}

// EnablePiped enables the agent. It evaluates all repositories at once and deploys missed
// changes.
func (s *apiService) EnablePiped(ctx context.Context, req *apiservice.EnablePipedRequest) (*apiservice.EnablePipedResponse, error) {
	return &apiservice.EnablePipedResponse{}, s.updateAgent(ctx, req.PipedId, func(a *deploy.AgentRecord) { a.Disabled = false })
}

// DisablePiped stops triggering. Deployments that were triggered continue.
func (s *apiService) DisablePiped(ctx context.Context, req *apiservice.DisablePipedRequest) (*apiservice.DisablePipedResponse, error) {
	return &apiservice.DisablePipedResponse{}, s.updateAgent(ctx, req.PipedId, func(a *deploy.AgentRecord) { a.Disabled = true })
}

func (s *apiService) updateAgent(ctx context.Context, id string, change func(*deploy.AgentRecord)) error {
	if err := s.checkPipedID(id); err != nil {
		return err
	}
	_, err := s.store.UpdateAgent(ctx, change)
	return err
}

// noEncryption is PipeCD's value for an agent without keys.
const noEncryption = "NONE"

// piped converts the agent. The message contains no keys for a control plane, because the
// agent connects to none.
func (c converter) piped(a deploy.Agent, r deploy.AgentRecord) *modelv1.Piped {
	m := &modelv1.Piped{
		Id: c.pipedID, Name: text(c.name(a, r)), Desc: text(r.Description), ProjectId: c.projectID,
		Version: text(a.Version), StartedAt: seconds(a.StartedAt), Disabled: r.Disabled,
		Status:    modelv1.Piped_ONLINE,
		CreatedAt: seconds(given(r.CreatedAt, a.StartedAt)), UpdatedAt: seconds(given(r.UpdatedAt, a.StartedAt)),
		SecretEncryption: &modelv1.Piped_SecretEncryption{Type: cmp.Or(a.Encryption.Type, noEncryption), PublicKey: text(a.Encryption.PublicKey)},
	}
	for _, repo := range a.Repositories {
		m.Repositories = append(m.Repositories, &modelv1.ApplicationGitRepository{Id: text(repo.ID), Remote: text(repo.Remote), Branch: text(repo.Branch)})
	}
	plugins := map[string]*modelv1.Piped_Plugin{}
	for _, kind := range a.Kinds {
		plugin := &modelv1.Piped_Plugin{Name: pluginOf(kind)}
		plugins[kind], m.Plugins = plugin, append(m.Plugins, plugin)
	}
	for _, p := range a.Providers {
		name, kind := text(p.Name), text(p.Type)
		m.PlatformProviders = append(m.PlatformProviders, &modelv1.Piped_PlatformProvider{Name: name, Type: kind})
		//lint:ignore SA1019 older clients read the older field
		m.CloudProviders = append(m.CloudProviders, &modelv1.Piped_CloudProvider{Name: name, Type: kind})
		if plugin := plugins[p.Type]; plugin != nil {
			plugin.DeployTargets = append(plugin.DeployTargets, name)
		}
	}
	return m
}

// name returns the name set through the API, else the configured one.
func (c converter) name(a deploy.Agent, r deploy.AgentRecord) string {
	return cmp.Or(r.Name, a.Name, c.pipedID)
}

// given returns t, or fallback if t is zero.
func given(t, fallback time.Time) time.Time {
	if t.IsZero() {
		return fallback
	}
	return t
}
