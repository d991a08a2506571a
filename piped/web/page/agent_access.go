package page

import (
	"cmp"
	"net/url"
	"strings"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// accessPage is how many sessions and records of the audit log a page shows.
const accessPage = 100

// keysView are the API keys.
type keysView struct {
	keys     []*modelv1.APIKey
	disabled bool // disabled keys are shown, too
}

// showKeys shows the API keys.
func showKeys(v *visit) (*screen, error) {
	k := &keysView{disabled: v.query().Get("disabled") == "shown"}
	resp, err := v.control.ListAPIKeys(v.ctx, &controlv1.ListAPIKeysRequest{IncludeDisabled: k.disabled})
	k.keys = resp.GetApiKeys()
	return &screen{body: keysBody(v, k)}, err
}

func (k *keysView) headline() string {
	enabled := 0
	for _, key := range k.keys {
		if !key.Disabled {
			enabled++
		}
	}
	return plural(enabled, "API key is", "API keys are") + " accepted."
}

// keyRole returns the name of a key's role.
func keyRole(k *modelv1.APIKey) string { return cmp.Or(k.RoleName, k.Role.String()) }

// selectorWords returns the applications that a selector selects, in words.
func selectorWords(s *modelv1.ApplicationSelector) string {
	var parts []string
	if labels := s.GetLabels(); len(labels) > 0 {
		parts = append(parts, labelText(labels))
	}
	if names := s.GetNames(); len(names) > 0 {
		parts = append(parts, "named "+strings.Join(names, " or "))
	}
	if ids := s.GetRepositoryIds(); len(ids) > 0 {
		parts = append(parts, "in "+strings.Join(ids, " or "))
	}
	return cmp.Or(strings.Join(parts, ", "), "all applications")
}

// sessionsView are the sessions of all users, or of the caller.
type sessionsView struct {
	sessions []*controlv1.Session
	own      bool // only those of the caller
	ended    bool // ended ones are shown, too
	everyone bool // the caller may see those of others
	q        url.Values
	next     string
}

// showSessions shows the sessions. A caller who may not manage keys sees their own.
func showSessions(v *visit) (*screen, error) {
	q := v.query()
	s := &sessionsView{q: q, everyone: v.everywhere("keys"), ended: q.Get("ended") == "shown"}
	s.own = !s.everyone || q.Get("own") == "only"
	resp, err := v.control.ListSessions(v.ctx, &controlv1.ListSessionsRequest{
		Subject: q.Get("subject"), IncludeEnded: s.ended, Own: s.own, Limit: accessPage, Cursor: q.Get("cursor"),
	})
	s.sessions, s.next = resp.GetSessions(), resp.GetCursor()
	return &screen{body: sessionsBody(v, s)}, err
}

func (s *sessionsView) headline(v *visit) string {
	open := 0
	for _, session := range s.sessions {
		if sessionOpen(v, session) {
			open++
		}
	}
	switch {
	case s.next != "" || s.q.Has("cursor"):
		return plural(open, "session is", "sessions are") + " open on this page."
	case s.own:
		return "You are signed in " + plural(open, "time", "times") + "."
	}
	return plural(open, "session is", "sessions are") + " open."
}

// sessionOpen reports whether a session is accepted.
func sessionOpen(v *visit, s *controlv1.Session) bool {
	return s.EndedAtMs == 0 && s.ExpiresAtMs > v.now.UnixMilli()
}

// sessionMark returns the mark of a session.
func sessionMark(v *visit, s *controlv1.Session) mark {
	switch {
	case s.Current:
		return mark{icon: "check", word: "This one", role: roleOK}
	case sessionOpen(v, s):
		return mark{icon: "dot", word: "Open", role: roleActive}
	case s.EndedAtMs > 0:
		return mark{icon: "stop", word: "Ended", role: roleMuted}
	}
	return mark{icon: "clock", word: "Expired", role: roleMuted}
}

// showUsers shows the users who cannot sign in.
func showUsers(v *visit) (*screen, error) {
	resp, err := v.control.ListDisabledUsers(v.ctx, &controlv1.ListDisabledUsersRequest{})
	return &screen{body: usersBody(v, resp.GetUsers())}, err
}

// userAction returns the address of a dialog about a user.
func userAction(name, issuer, subject string) string {
	return withQuery("/actions/"+name, url.Values{"issuer": {issuer}, "subject": {subject}})
}

func sessionAction(id string) string {
	return withQuery("/actions/end-session", url.Values{"session": {id}})
}

func keyAction(id string) string {
	return withQuery("/actions/disable-key", url.Values{"key": {id}})
}
