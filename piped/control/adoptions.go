package control

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// adoptions reads pending adoptions from the store.
type adoptions interface {
	// Adoptions returns the adoptions that await a decision, the oldest first.
	// CheckDecision returns an error of kind Illegal if none with this token does.
	Adoptions(ctx context.Context) ([]deploy.Adoption, error)
	CheckDecision(ctx context.Context, appID, token string) error
}

// ListAdoptions lists the applications whose live objects await a decision on taking them
// over.
func (s *controlService) ListAdoptions(ctx context.Context, req *controlv1.ListAdoptionsRequest) (*controlv1.ListAdoptionsResponse, error) {
	awaited, err := s.store.Adoptions(ctx)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.ListAdoptionsResponse{}
	for _, a := range awaited {
		if req.ApplicationId != "" && req.ApplicationId != a.ApplicationID {
			continue
		}
		app, err := s.store.Application(ctx, a.ApplicationID)
		if err != nil {
			return nil, err
		}
		resp.Adoptions = append(resp.Adoptions, adoption(app, a))
	}
	return resp, holdsAll(resp.Adoptions, "adoptions", "name an application; an application that waits has a notice")
}

func adoption(app deploy.Application, a deploy.Adoption) *controlv1.Adoption {
	m := &controlv1.Adoption{
		ApplicationId: text(app.ID), ApplicationName: text(app.Name), RunningCommit: text(a.RunningCommit), Token: text(a.Token), SinceMs: millis(a.Since),
	}
	for _, o := range a.Objects {
		m.Objects = append(m.Objects, &controlv1.AdoptedObject{
			Object: objectRef(app.Provider, o.Object), Managers: textList(o.Managers), OwnerApplicationId: text(o.OwnerApplicationID), Changes: o.Changes,
		})
	}
	return m
}

// DecideAdoption stores a command with the decision. Whether the live objects have changed
// since is checked on execution and reported on the command.
func (s *controlService) DecideAdoption(ctx context.Context, req *controlv1.DecideAdoptionRequest) (*controlv1.DecideAdoptionResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	switch {
	case err != nil:
		return nil, err
	case app.Deleted:
		return nil, deploy.Errorf(deploy.NotFound, "application %s is deleted", app.ID)
	}
	if err := s.store.CheckDecision(ctx, app.ID, req.Token); err != nil {
		return nil, err
	}
	id, err := s.submit(ctx, deploy.Command{Type: deploy.CommandDecideAdoption, ApplicationID: app.ID, Accept: req.Accept, Token: req.Token})
	return &controlv1.DecideAdoptionResponse{CommandId: id}, err
}
