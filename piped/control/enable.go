package control

import (
	"context"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// EnableApplication enables an application and evaluates the head at once, as APIService's
// method does.
func (s *controlService) EnableApplication(ctx context.Context, req *controlv1.EnableApplicationRequest) (*controlv1.EnableApplicationResponse, error) {
	if err := s.store.SetDisabled(ctx, req.ApplicationId, false); err != nil {
		return nil, err
	}
	return &controlv1.EnableApplicationResponse{}, nil
}
