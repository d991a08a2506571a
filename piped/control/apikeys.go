package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// maxKeyText limits the name and the subject of a key, in characters.
const maxKeyText = 128

// CreateAPIKey creates a key and returns it; this is the only time that its secret is visible.
// The creator is recorded.
func (s *controlService) CreateAPIKey(ctx context.Context, req *controlv1.CreateAPIKeyRequest) (*controlv1.CreateAPIKeyResponse, error) {
	role, ok := modelv1.APIKey_Role_name[int32(req.Role)]
	if !ok {
		return nil, deploy.Errorf(deploy.Invalid, "there is no role %d of API keys: use READ_ONLY or READ_WRITE", req.Role)
	}
	subject := cmp.Or(req.Subject, req.Name)
	if err := CheckAPIKeyText(req.Name, subject); err != nil {
		return nil, err
	}
	record, key, err := NewAPIKey(req.Name, subject, deploy.Role(role), time.Time{}, rand.Reader)
	if err != nil {
		return nil, err
	}
	record.Creator = callerOf(ctx).Subject
	if err := s.store.CreateAPIKey(ctx, record); err != nil {
		return nil, err
	}
	if record, err = s.store.APIKey(ctx, record.ID); err != nil { // with the store's timestamp
		return nil, err
	}
	return &controlv1.CreateAPIKeyResponse{Key: key, ApiKey: s.convert.apiKey(record)}, nil
}

// CheckAPIKeyText returns an error of kind Invalid for a name or subject that cannot be
// displayed and logged safely.
func CheckAPIKeyText(name, subject string) error {
	return first(checkKeyText("name", name), checkKeyText("subject", subject))
}

func checkKeyText(what, value string) error {
	switch {
	case strings.TrimSpace(value) == "" || strings.TrimSpace(value) != value:
		return deploy.Errorf(deploy.Invalid, "the %s of an API key is %q: give it one without spaces around it", what, value)
	case utf8.RuneCountInString(value) > maxKeyText:
		return deploy.Errorf(deploy.Invalid, "the %s of an API key has %d characters: give it one of up to %d", what, utf8.RuneCountInString(value), maxKeyText)
	case strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
		return deploy.Errorf(deploy.Invalid, "the %s of an API key is %q: give it one of printable characters", what, value)
	}
	return nil
}

// ListAPIKeys lists keys by name, without their secrets.
func (s *controlService) ListAPIKeys(ctx context.Context, req *controlv1.ListAPIKeysRequest) (*controlv1.ListAPIKeysResponse, error) {
	keys, err := s.store.APIKeys(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(keys, func(a, b deploy.APIKey) int { return strings.Compare(a.Name, b.Name) })
	resp := &controlv1.ListAPIKeysResponse{}
	for _, k := range keys {
		if !k.Disabled || req.IncludeDisabled {
			resp.ApiKeys = append(resp.ApiKeys, s.convert.apiKey(k))
		}
	}
	return resp, nil
}

// DisableAPIKey disables a key permanently. When it returns, calls with the key fail and
// its streams have ended.
func (s *controlService) DisableAPIKey(ctx context.Context, req *controlv1.DisableAPIKeyRequest) (*controlv1.DisableAPIKeyResponse, error) {
	if _, whole := keyID(req.Id); whole { // the caller passed a whole key, which the error must not repeat
		return nil, deploy.Errorf(deploy.Invalid, "id holds more than the ID of an API key: give the part before the dot, never the key itself")
	}
	return &controlv1.DisableAPIKeyResponse{}, s.store.DisableAPIKey(ctx, req.Id)
}

func (c converter) apiKey(k deploy.APIKey) *modelv1.APIKey {
	return &modelv1.APIKey{
		Id: text(k.ID), Name: text(k.Name), KeyHash: "redacted", ProjectId: c.projectID,
		Role: modelv1.APIKey_Role(modelv1.APIKey_Role_value[string(k.Role)]), Creator: text(k.Creator), Subject: text(k.Subject),
		LastUsedAt: seconds(k.LastUsedAt), Disabled: k.Disabled, CreatedAt: seconds(k.CreatedAt), UpdatedAt: seconds(k.UpdatedAt),
	}
}
