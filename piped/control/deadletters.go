package control

import (
	"context"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// deadLetters changes the notifications that were given up for a receiver. NotFound: there is no
// such receiver.
type deadLetters interface {
	// ReplayDeadLetters makes them pending again; DropDeadLetters deletes them. Both return
	// their number.
	ReplayDeadLetters(ctx context.Context, receiver string) (int, error)
	DropDeadLetters(ctx context.Context, receiver string) (int, error)
}

// ReplayDeadLetters delivers the dead letters of a receiver again.
func (s *controlService) ReplayDeadLetters(ctx context.Context, req *controlv1.ReplayDeadLettersRequest) (*controlv1.ReplayDeadLettersResponse, error) {
	n, err := s.store.ReplayDeadLetters(ctx, req.Receiver)
	return &controlv1.ReplayDeadLettersResponse{Count: int32(n)}, err
}

// DropDeadLetters deletes the dead letters of a receiver.
func (s *controlService) DropDeadLetters(ctx context.Context, req *controlv1.DropDeadLettersRequest) (*controlv1.DropDeadLettersResponse, error) {
	n, err := s.store.DropDeadLetters(ctx, req.Receiver)
	return &controlv1.DropDeadLettersResponse{Count: int32(n)}, err
}
