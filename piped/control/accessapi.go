package control

import (
	"context"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// users stores sessions and the users who cannot sign in.
type users interface {
	// Sessions returns sessions without their secrets, the last created first, and the cursor of
	// the next page, "" at the end.
	Sessions(ctx context.Context, q store.SessionQuery) ([]deploy.Session, string, error)
	// EndSession ends a session and announces it.
	EndSession(ctx context.Context, id string) error
	// DisableUser ends the sessions of a user and prevents new ones; EnableUser permits them.
	DisableUser(ctx context.Context, issuer, subject, by string) error
	EnableUser(ctx context.Context, issuer, subject string) error
	// DisabledUsers returns the disabled users by issuer and subject.
	DisabledUsers(ctx context.Context) ([]deploy.DisabledUser, error)
}

// defaultPage is the page size of lists of sessions and audit records.
const defaultPage = 100

func pageSize(limit int32) int32 {
	if limit == 0 {
		return defaultPage
	}
	return limit
}

// GetCaller returns who the caller is and what the caller may do.
func (s *controlService) GetCaller(ctx context.Context, _ *controlv1.GetCallerRequest) (*controlv1.GetCallerResponse, error) {
	c, policy := callerOf(ctx), s.policy()
	id, err := s.identify(ctx, c)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.GetCallerResponse{
		Kind: callerKind(c), Id: text(c.ID), Subject: text(c.Subject), Issuer: text(c.Issuer), Name: text(id.name), Groups: textList(c.Groups),
		Roles: textList(policy.RolesOf(c)), Applications: selectorMessage(c.Limit), ExpiresAtMs: millis(id.session.ExpiresAt),
	}
	for _, p := range deploy.Permissions() {
		resp.Permissions = append(resp.Permissions, &controlv1.CallerPermission{Permission: string(p), Extent: extentOf(policy, c, p)})
	}
	return resp, nil
}

// identity is what the store knows of a caller.
type identity struct {
	name    string         // for display
	keyID   string         // of the API key, also of one that opened a session
	session deploy.Session // zero for a call with an API key
}

func (s *controlService) identify(ctx context.Context, c access.Caller) (id identity, err error) {
	id.keyID = c.ID
	if c.Session {
		if id.session, err = s.store.Session(ctx, c.ID); err != nil {
			return identity{}, err
		}
		id.name, id.keyID = id.session.User.Name, id.session.KeyID
	}
	if id.keyID == "" {
		return id, nil
	}
	key, err := s.store.APIKey(ctx, id.keyID)
	id.name = key.Name
	return id, err
}

func callerKind(c access.Caller) controlv1.CallerKind {
	switch {
	case c.User:
		return controlv1.CallerKind_CALLER_KIND_USER
	case c.Session:
		return controlv1.CallerKind_CALLER_KIND_API_KEY_SESSION
	}
	return controlv1.CallerKind_CALLER_KIND_API_KEY
}

// extentOf returns where a caller has a permission.
func extentOf(policy *access.Policy, c access.Caller, p deploy.Permission) controlv1.PermissionExtent {
	scope := policy.Scope(c, p)
	switch {
	case scope.All || !p.OfApplications() && policy.Allows(c, p):
		return controlv1.PermissionExtent_PERMISSION_EXTENT_EVERYWHERE
	case scope.None() || !p.OfApplications():
		return controlv1.PermissionExtent_PERMISSION_EXTENT_NOWHERE
	}
	return controlv1.PermissionExtent_PERMISSION_EXTENT_SOME
}

// CheckAccess returns whether a subject has a permission in an application, and why.
func (s *controlService) CheckAccess(ctx context.Context, req *controlv1.CheckAccessRequest) (*controlv1.CheckAccessResponse, error) {
	who, err := s.subjectOf(ctx, req)
	if err != nil {
		return nil, err
	}
	permission := deploy.Permission(req.Permission)
	var app deploy.Application
	if permission.OfApplications() {
		if app, err = s.store.Application(ctx, req.ApplicationId); err != nil {
			return nil, err
		}
	}
	decision := s.policy().Explain(who, permission, app)
	if disabled, err := s.disabled(ctx, who); err != nil {
		return nil, err
	} else if disabled {
		decision = access.Decision{Reason: "user " + who.Subject + " is disabled"}
	}
	return &controlv1.CheckAccessResponse{
		Allowed: decision.Allowed, Role: text(decision.Role), Reason: text(decision.Reason), Kind: callerKind(who), Groups: textList(who.Groups),
	}, nil
}

// subjectOf returns the caller that a request is about. Only who administers the agent may ask
// about others.
func (s *controlService) subjectOf(ctx context.Context, req *controlv1.CheckAccessRequest) (access.Caller, error) {
	c := callerOf(ctx)
	own, err := s.isCaller(ctx, c, req)
	switch {
	case err != nil:
		return access.Caller{}, err
	case own:
		return c, nil
	case !administers(ctx):
		return access.Caller{}, deploy.Errorf(deploy.Denied, "Permission denied: to ask about others needs the permission %q", deploy.PermAdminister)
	case req.Issuer == "" && len(req.Groups) == 0:
		if key, ok, err := s.enabledKey(ctx, req.Subject); err != nil || ok {
			return access.CallerOf(key), err
		}
	}
	return s.userOf(ctx, req)
}

// isCaller reports whether a request is about the caller.
func (s *controlService) isCaller(ctx context.Context, c access.Caller, req *controlv1.CheckAccessRequest) (bool, error) {
	switch {
	case req.Subject == "":
		return true, nil
	case len(req.Groups) > 0 || req.Issuer != "" && req.Issuer != c.Issuer:
		return false, nil
	case c.User:
		return req.Subject == c.Subject, nil
	}
	id, err := s.identify(ctx, c)
	return req.Subject == id.name, err
}

// enabledKey returns the enabled API key with a name.
func (s *controlService) enabledKey(ctx context.Context, name string) (deploy.APIKey, bool, error) {
	keys, err := s.store.APIKeys(ctx)
	i := slices.IndexFunc(keys, func(k deploy.APIKey) bool { return k.Name == name && !k.Disabled })
	if err != nil || i < 0 {
		return deploy.APIKey{}, false, err
	}
	return keys[i], true, nil
}

// userOf returns a user with the groups of a request, or else of the user's newest session.
func (s *controlService) userOf(ctx context.Context, req *controlv1.CheckAccessRequest) (access.Caller, error) {
	user := access.Caller{User: true, Session: true, Subject: req.Subject, Issuer: req.Issuer, Groups: req.Groups}
	if len(req.Groups) > 0 {
		return user, nil
	}
	for cursor := ""; ; {
		list, next, err := s.store.Sessions(ctx, store.SessionQuery{Subject: req.Subject, Issuer: req.Issuer, Limit: defaultPage, Cursor: cursor})
		if err != nil {
			return user, err
		}
		if i := slices.IndexFunc(list, func(v deploy.Session) bool { return v.KeyID == "" }); i >= 0 {
			user.Issuer, user.Groups = list[i].User.Issuer, list[i].User.Groups
			return user, nil
		}
		if cursor = next; cursor == "" {
			return user, nil
		}
	}
}

// disabled reports whether a user cannot sign in. Without an issuer it is about the subject at
// any of them.
func (s *controlService) disabled(ctx context.Context, c access.Caller) (bool, error) {
	if !c.User {
		return false, nil
	}
	list, err := s.store.DisabledUsers(ctx)
	return slices.ContainsFunc(list, func(u deploy.DisabledUser) bool {
		return u.Subject == c.Subject && (c.Issuer == "" || u.Issuer == c.Issuer)
	}), err
}

// ListSessions lists sessions without their secrets: those of the caller, unless the caller
// manages keys.
func (s *controlService) ListSessions(ctx context.Context, req *controlv1.ListSessionsRequest) (*controlv1.ListSessionsResponse, error) {
	q := store.SessionQuery{OpenOnly: !req.IncludeEnded, Issuer: req.Issuer, Subject: req.Subject}
	if req.Own || !s.managesKeys(ctx) {
		own, err := s.ownSessions(ctx)
		if err != nil {
			return nil, err
		}
		if req.Subject != "" && req.Subject != own.Subject || req.Issuer != "" && req.Issuer != own.Issuer {
			return &controlv1.ListSessionsResponse{}, nil
		}
		q.Issuer, q.Subject, q.KeyID = own.Issuer, own.Subject, own.KeyID
	}
	current := callerOf(ctx).ID
	sessions, cursor, err := page(pageSize(req.Limit), func(limit int) ([]deploy.Session, string, error) {
		q.Limit, q.Cursor = limit, req.Cursor
		return s.store.Sessions(ctx, q)
	}, func(v deploy.Session) *controlv1.Session { return sessionMessage(v, current) })
	if err != nil {
		return nil, err
	}
	return &controlv1.ListSessionsResponse{Sessions: sessions, Cursor: cursor}, nil
}

// managesKeys reports whether the caller may see and end the sessions of others.
func (s *controlService) managesKeys(ctx context.Context) bool {
	return s.policy().Allows(callerOf(ctx), deploy.PermKeys)
}

// ownSessions selects the sessions of the caller: of the user, or of the API key.
func (s *controlService) ownSessions(ctx context.Context) (store.SessionQuery, error) {
	c := callerOf(ctx)
	if c.User {
		return store.SessionQuery{Issuer: c.Issuer, Subject: c.Subject}, nil
	}
	id, err := s.identify(ctx, c)
	return store.SessionQuery{Subject: c.Subject, KeyID: id.keyID}, err
}

func sessionMessage(v deploy.Session, current string) *controlv1.Session {
	return &controlv1.Session{
		Id: text(v.ID), Issuer: text(v.User.Issuer), Subject: text(v.User.Subject), Name: text(v.User.Name), Groups: textList(v.User.Groups),
		KeyId: text(v.KeyID), Remote: text(v.Remote), Client: text(v.Client),
		CreatedAtMs: millis(v.CreatedAt), ExpiresAtMs: millis(v.ExpiresAt), LastUsedAtMs: millis(v.LastUsedAt), GroupsAtMs: millis(v.GroupsAt), EndedAtMs: millis(v.EndedAt),
		Current: v.ID == current,
	}
}

// EndSession ends a session. When it returns, calls with the session fail and its streams have
// ended. Sessions of others do not exist for a caller who does not manage keys.
func (s *controlService) EndSession(ctx context.Context, req *controlv1.EndSessionRequest) (*controlv1.EndSessionResponse, error) {
	c, id := callerOf(ctx), req.Id
	if _, whole := access.IDOf(id); whole { // the caller passed a whole token, which the error must not repeat
		return nil, deploy.Errorf(deploy.Invalid, "id holds more than the ID of a session: give the part before the dot, never the token itself")
	}
	switch {
	case id == "" && !c.Session:
		return nil, deploy.Errorf(deploy.Illegal, "the call was made with an API key, not with a session: give the ID of a session")
	case id == "":
		id = c.ID
	}
	if id != c.ID && !s.managesKeys(ctx) {
		if err := s.owns(ctx, id); err != nil {
			return nil, err
		}
	}
	return &controlv1.EndSessionResponse{}, s.store.EndSession(ctx, id)
}

// owns returns an error of kind NotFound, worded as that of an unknown ID, unless a session
// belongs to the caller.
func (s *controlService) owns(ctx context.Context, id string) error {
	own, err := s.ownSessions(ctx)
	if err != nil {
		return err
	}
	v, err := s.store.Session(ctx, id)
	if deploy.IsKind(err, deploy.NotFound) || err == nil && (v.User.Issuer != own.Issuer || v.User.Subject != own.Subject || v.KeyID != own.KeyID) {
		return deploy.Errorf(deploy.NotFound, "there is no session %s", id)
	}
	return err
}

// DisableUser ends the sessions of a user and prevents new ones.
func (s *controlService) DisableUser(ctx context.Context, req *controlv1.DisableUserRequest) (*controlv1.DisableUserResponse, error) {
	return &controlv1.DisableUserResponse{}, s.store.DisableUser(ctx, req.Issuer, req.Subject, callerOf(ctx).Subject)
}

// EnableUser lets a disabled user sign in again.
func (s *controlService) EnableUser(ctx context.Context, req *controlv1.EnableUserRequest) (*controlv1.EnableUserResponse, error) {
	return &controlv1.EnableUserResponse{}, s.store.EnableUser(ctx, req.Issuer, req.Subject)
}

// ListDisabledUsers lists the users who cannot sign in.
func (s *controlService) ListDisabledUsers(ctx context.Context, _ *controlv1.ListDisabledUsersRequest) (*controlv1.ListDisabledUsersResponse, error) {
	list, err := s.store.DisabledUsers(ctx)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.ListDisabledUsersResponse{}
	for _, u := range list {
		resp.Users = append(resp.Users, disabledUser(u))
	}
	return resp, holdsAll(resp.Users, "disabled users", "enable those who are gone at the issuer, too")
}

func disabledUser(u deploy.DisabledUser) *controlv1.DisabledUser {
	return &controlv1.DisabledUser{Issuer: text(u.Issuer), Subject: text(u.Subject), DisabledBy: text(u.By), DisabledAtMs: millis(u.At)}
}

// ListAudit lists the audit log, the newest record first. The store restricts it to the
// applications that the caller may view.
func (s *controlService) ListAudit(ctx context.Context, req *controlv1.ListAuditRequest) (*controlv1.ListAuditResponse, error) {
	if !administers(ctx) && viewOf(ctx).None() {
		return nil, deploy.Errorf(deploy.Denied, "Permission denied: this needs the permission %q or %q, which no role of %s grants", deploy.PermView, deploy.PermAdminister, callerOf(ctx).Subject)
	}
	records, cursor, err := page(pageSize(req.Limit), func(limit int) ([]deploy.AuditRecord, string, error) {
		return s.store.ListAudit(ctx, store.AuditQuery{
			From: timeOf(req.FromMs), To: timeOf(req.ToMs), Subject: req.Subject, Method: req.Method, ApplicationID: req.ApplicationId, Code: req.Code,
			Limit: limit, Cursor: req.Cursor,
		})
	}, auditMessage)
	if err != nil {
		return nil, err
	}
	return &controlv1.ListAuditResponse{Records: records, Cursor: cursor}, nil
}

func auditMessage(r deploy.AuditRecord) *controlv1.AuditRecord {
	return &controlv1.AuditRecord{
		Id: r.ID, AtMs: millis(r.At), Subject: text(r.Subject), Issuer: text(r.Issuer), CallerId: text(r.CallerID), Session: r.Session, Remote: text(r.Remote),
		Method: text(r.Method), Permission: text(string(r.Permission)), ApplicationId: text(r.ApplicationID), DeploymentId: text(r.DeploymentID),
		Code: text(r.Code), Reason: text(r.Reason), DurationMs: r.Duration.Milliseconds(), Target: texts(r.Target), Result: texts(r.Result),
	}
}

// validateAccess validates requests about callers, sessions and the audit log.
func validateAccess(req any) error {
	switch r := req.(type) {
	case *controlv1.CheckAccessRequest:
		return validCheckAccess(r)
	case *controlv1.ListSessionsRequest:
		return notNegative("ListSessionsRequest.Limit", r.Limit)
	case *controlv1.DisableUserRequest:
		return first(required("DisableUserRequest.Issuer", r.Issuer), required("DisableUserRequest.Subject", r.Subject))
	case *controlv1.EnableUserRequest:
		return first(required("EnableUserRequest.Issuer", r.Issuer), required("EnableUserRequest.Subject", r.Subject))
	case *controlv1.ListAuditRequest:
		return first(
			notNegative("ListAuditRequest.FromMs", r.FromMs),
			notNegative("ListAuditRequest.ToMs", r.ToMs),
			notNegative("ListAuditRequest.Limit", r.Limit))
	}
	return nil
}

func validCheckAccess(r *controlv1.CheckAccessRequest) error {
	permission := deploy.Permission(r.Permission)
	if err := first(
		required("CheckAccessRequest.Permission", r.Permission),
		bounded("CheckAccessRequest.Groups", "items", len(r.Groups))); err != nil {
		return err
	}
	switch {
	case !slices.Contains(deploy.Permissions(), permission):
		return deploy.Errorf(deploy.Invalid, "there is no permission %q: the permissions are %s", text(r.Permission), permissionNames())
	case r.Subject == "" && (r.Issuer != "" || len(r.Groups) > 0):
		return deploy.Errorf(deploy.Invalid, "issuer and groups belong to a subject: give one")
	case permission.OfApplications():
		return required("CheckAccessRequest.ApplicationId", r.ApplicationId)
	}
	return nil
}

// permissionNames lists the permissions.
func permissionNames() string {
	var names []string
	for _, p := range deploy.Permissions() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}
