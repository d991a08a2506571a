package control

import (
	"context"
	"encoding/base64"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// Encrypt encrypts a secret with the agent's public key.
func (s *apiService) Encrypt(_ context.Context, req *apiservice.EncryptRequest) (*apiservice.EncryptResponse, error) {
	if err := s.checkPipedID(req.PipedId); err != nil {
		return nil, err
	}
	plaintext := []byte(req.Plaintext)
	if req.Base64Encoding {
		plaintext = base64.StdEncoding.AppendEncode(nil, plaintext)
	}
	ciphertext, err := s.agent.Encrypt(plaintext)
	switch {
	case deploy.IsKind(err, deploy.Illegal):
		return nil, status.Error(codes.FailedPrecondition, "The piped does not contain a public key")
	case err != nil:
		return nil, err
	case len(ciphertext) > maxResponse:
		return nil, deploy.Errorf(deploy.Invalid, "the secret has %d bytes, which are too many once they are encrypted: split it, or keep it out of Git", len(req.Plaintext))
	}
	return &apiservice.EncryptResponse{Ciphertext: ciphertext}, nil
}
