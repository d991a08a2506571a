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

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// keys stores API keys.
type keys interface {
	// APIKeys returns all keys, also disabled ones.
	APIKeys(ctx context.Context) ([]deploy.APIKey, error)
	// CreateAPIKey stores a key. Exists: an enabled key has the same name.
	CreateAPIKey(ctx context.Context, k deploy.APIKey) error
	// DisableAPIKey disables a key permanently and announces it. Illegal: it is the
	// last enabled key with READ_WRITE.
	DisableAPIKey(ctx context.Context, id string) error
}

// maxKeyText limits the name and the subject of a key, in characters.
const maxKeyText = 128

// CreateAPIKey creates a key and returns it; this is the only time that its secret is visible.
// The creator is recorded.
func (s *controlService) CreateAPIKey(ctx context.Context, req *controlv1.CreateAPIKeyRequest) (*controlv1.CreateAPIKeyResponse, error) {
	role, err := s.roleOf(req)
	if err != nil {
		return nil, err
	}
	subject := cmp.Or(req.Subject, req.Name)
	if err := CheckAPIKeyText(req.Name, subject); err != nil {
		return nil, err
	}
	record, key, err := access.NewAPIKey(req.Name, subject, role, time.Time{}, rand.Reader)
	if err != nil {
		return nil, err
	}
	record.Creator, record.Limit = callerOf(ctx).Subject, selectorFrom(req.Applications)
	if !s.policy().Covers(callerOf(ctx), access.CallerOf(record)) {
		return nil, deploy.Errorf(deploy.Denied, "%s lacks some of the permissions of role %s: create a key that permits no more than you may", callerOf(ctx).Subject, role)
	}
	if policy := s.policy(); !policy.Scope(access.CallerOf(record), deploy.PermApprove).None() && !policy.Allows(callerOf(ctx), deploy.PermAdminister) {
		return nil, deploy.Errorf(deploy.Denied, "role %s permits to approve, as whomever the key names: let a caller with the permission %q create it", role, deploy.PermAdminister)
	}
	if err := s.store.CreateAPIKey(ctx, record); err != nil {
		return nil, err
	}
	if record, err = s.store.APIKey(ctx, record.ID); err != nil { // with the store's timestamp
		return nil, err
	}
	return &controlv1.CreateAPIKeyResponse{Key: key, ApiKey: s.convert.apiKey(record)}, nil
}

// validCreateAPIKey validates the request itself.
func validCreateAPIKey(r *controlv1.CreateAPIKeyRequest) error {
	if err := required("CreateAPIKeyRequest.Name", r.Name); err != nil {
		return err
	}
	a := r.GetApplications()
	if err := pairs("CreateAPIKeyRequest.Applications.Labels", a.GetLabels()); err != nil {
		return err
	}
	return first(
		bounded("CreateAPIKeyRequest.Applications.Names", "items", len(a.GetNames())),
		bounded("CreateAPIKeyRequest.Applications.RepositoryIds", "items", len(a.GetRepositoryIds())))
}

// roleOf returns the role of a new key, which must exist.
func (s *controlService) roleOf(req *controlv1.CreateAPIKeyRequest) (deploy.Role, error) {
	if req.RoleName != "" {
		if policy := s.policy(); !policy.Known(req.RoleName) {
			return "", deploy.Errorf(deploy.Invalid, "there is no role %q: the roles are %s", req.RoleName, strings.Join(policy.Roles(), ", "))
		}
		return deploy.Role(req.RoleName), nil
	}
	role, ok := modelv1.APIKey_Role_name[int32(req.Role)]
	if !ok {
		return "", deploy.Errorf(deploy.Invalid, "there is no role %d of API keys: use READ_ONLY or READ_WRITE", req.Role)
	}
	return deploy.Role(role), nil
}

// selectorFrom returns the restriction of a new key, nil for none.
func selectorFrom(m *modelv1.ApplicationSelector) *deploy.Selector {
	s := deploy.Selector{Labels: m.GetLabels(), Names: m.GetNames(), Repositories: m.GetRepositoryIds()}
	if s.Empty() {
		return nil
	}
	return &s
}

// selectorMessage converts the restriction of a key.
func selectorMessage(s *deploy.Selector) *modelv1.ApplicationSelector {
	if s == nil {
		return nil
	}
	return &modelv1.ApplicationSelector{Labels: texts(s.Labels), Names: textList(s.Names), RepositoryIds: textList(s.Repositories)}
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

// DisableAPIKey disables a key permanently, which must not permit more than the caller may do:
// callers with fewer rights cannot lock out others. When it returns, calls with the key fail and
// its streams have ended.
func (s *controlService) DisableAPIKey(ctx context.Context, req *controlv1.DisableAPIKeyRequest) (*controlv1.DisableAPIKeyResponse, error) {
	if _, whole := access.IDOf(req.Id); whole { // the caller passed a whole key, which the error must not repeat
		return nil, deploy.Errorf(deploy.Invalid, "id holds more than the ID of an API key: give the part before the dot, never the key itself")
	}
	key, err := s.store.APIKey(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	if !s.policy().Covers(callerOf(ctx), access.CallerOf(key)) {
		return nil, deploy.Errorf(deploy.Denied, "%s lacks some of the permissions of API key %s: let a caller who has them disable it", callerOf(ctx).Subject, req.Id)
	}
	return &controlv1.DisableAPIKeyResponse{}, s.store.DisableAPIKey(ctx, req.Id)
}

func (c converter) apiKey(k deploy.APIKey) *modelv1.APIKey {
	return &modelv1.APIKey{
		Id: text(k.ID), Name: text(k.Name), KeyHash: "redacted", ProjectId: c.projectID,
		Role: modelv1.APIKey_Role(modelv1.APIKey_Role_value[string(k.Role)]), Creator: text(k.Creator), Subject: text(k.Subject),
		RoleName: text(string(k.Role)), Applications: selectorMessage(k.Limit), LastUsedAt: seconds(k.LastUsedAt), Disabled: k.Disabled, CreatedAt: seconds(k.CreatedAt), UpdatedAt: seconds(k.UpdatedAt),
	}
}
