package page

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func prepareCreateKey(*visit, url.Values) (*dialog, error) {
	return &dialog{title: "Create an API key", submit: "Create", text: "Its secret is shown once. Restrictions hold together; without one the key is for all applications.",
		command: "pipectl apikey create --name NAME --role viewer",
		fields: []field{
			{kind: "text", name: "name", label: "Name", hint: "such as ci-of-payments"},
			{kind: "choice", name: "role", label: "Role", options: []option{
				{"viewer", "Viewer", "sees everything, changes nothing", true},
				{"deployer", "Deployer", "also syncs, cancels and rolls back", false},
				{"approver", "Approver", "also approves and rejects", false},
				{"admin", "Admin", "everything, also keys and users", false},
			}},
			{kind: "text", name: "other-role", label: "Another role", hint: "one of the agent's configuration, instead"},
			{kind: "text", name: "stands-for", label: "Stands for", hint: "login name of a person; empty: the key's name"},
			{kind: "text", name: "labels", label: "Only with the labels", hint: "team=payments, env=prod"},
			{kind: "text", name: "names", label: "Only with the names", hint: "web, payments-*"},
			{kind: "text", name: "repositories", label: "Only in the repositories", hint: "IDs of the agent's configuration"},
		}}, nil
}

func runCreateKey(v *visit, q url.Values) (*outcome, error) {
	limit, err := selectorOf(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.CreateAPIKey(v.ctx, &controlv1.CreateAPIKeyRequest{
		Name: strings.TrimSpace(q.Get("name")), Subject: strings.TrimSpace(q.Get("stands-for")), RoleName: cmp.Or(strings.TrimSpace(q.Get("other-role")), q.Get("role")), Applications: limit,
	})
	return &outcome{title: "The key " + resp.GetApiKey().GetName() + " is created", text: "Copy it now: it is not stored and cannot be shown again.", secret: resp.GetKey(),
		links: []navLink{{label: "Show the keys", path: agentPath("keys")}}}, err
}

// selectorOf returns the applications to which a form restricts a key; nil for no restriction.
func selectorOf(q url.Values) (*modelv1.ApplicationSelector, error) {
	labels, err := labelsOf(q.Get("labels"))
	if err != nil {
		return nil, err
	}
	s := &modelv1.ApplicationSelector{Labels: labels, Names: commaList(q.Get("names")), RepositoryIds: commaList(q.Get("repositories"))}
	if len(s.Labels)+len(s.Names)+len(s.RepositoryIds) == 0 {
		return nil, nil
	}
	return s, nil
}

// commaList returns the values of a text that are separated by commas or spaces.
func commaList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}

// key reads the API key that a query names.
func (v *visit) key(q url.Values) (*modelv1.APIKey, error) {
	resp, err := v.control.ListAPIKeys(v.ctx, &controlv1.ListAPIKeysRequest{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(resp.ApiKeys, func(k *modelv1.APIKey) bool { return k.Id == q.Get("key") })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "there is no enabled API key %q", q.Get("key"))
	}
	return resp.ApiKeys[i], nil
}

func prepareDisableKey(v *visit, q url.Values) (*dialog, error) {
	k, err := v.key(q)
	if err != nil {
		return nil, err
	}
	used := "It was never used."
	if k.LastUsedAt > 0 {
		used = "It was last used " + ago(v.now, k.LastUsedAt*1000) + "."
	}
	return &dialog{title: "Disable the key " + k.Name + "?", submit: "Disable for good", danger: true, confirm: k.Name, command: "pipectl apikey disable --key-id " + k.Id,
		text: "Calls made with it fail from now on, and so do the sessions that it opened. It cannot be enabled again. " + used}, nil
}

func runDisableKey(v *visit, q url.Values) (*outcome, error) {
	_, err := v.control.DisableAPIKey(v.ctx, &controlv1.DisableAPIKeyRequest{Id: q.Get("key")})
	return &outcome{title: "The key is disabled", text: "No call is accepted with it.", links: []navLink{{label: "Show the keys", path: agentPath("keys")}}}, err
}

// session reads the session that a query names, among those that the caller may end.
func (v *visit) session(q url.Values) (*controlv1.Session, error) {
	req := &controlv1.ListSessionsRequest{Own: !v.everywhere("keys"), Limit: 500}
	for {
		resp, err := v.control.ListSessions(v.ctx, req)
		if err != nil {
			return nil, err
		}
		for _, s := range resp.Sessions {
			if s.Id == q.Get("session") {
				return s, nil
			}
		}
		if req.Cursor = resp.Cursor; req.Cursor == "" {
			return nil, status.Errorf(codes.NotFound, "there is no open session %q", q.Get("session"))
		}
	}
}

func prepareEndSession(v *visit, q url.Values) (*dialog, error) {
	s, err := v.session(q)
	if err != nil {
		return nil, err
	}
	out := &dialog{title: "End the session of " + s.Subject + "?", submit: "End", danger: true, command: "pipectl session end --session-id " + s.Id,
		text: "It began " + ago(v.now, s.CreatedAtMs) + " at " + s.Remote + " with " + s.Client + ". Calls made with it fail from now on; " + s.Subject + " can sign in again."}
	if s.Current {
		out.title, out.text = "End this session?", "It is the one that you use now: you will have to sign in again."
	}
	return out, nil
}

func runEndSession(v *visit, q url.Values) (*outcome, error) {
	_, err := v.control.EndSession(v.ctx, &controlv1.EndSessionRequest{Id: q.Get("session")})
	return &outcome{title: "The session has ended", links: []navLink{{label: "Show the sessions", path: agentPath("sessions")}}}, err
}

// userCommand returns the command that does the same with pipectl.
func userCommand(verb string, q url.Values) string {
	return "pipectl user " + verb + " --issuer " + shellWord(q.Get("issuer")) + " --subject " + shellWord(q.Get("subject"))
}

// plainWord matches what a shell does not interpret.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellWord returns a text as one word of a shell's command, because users copy commands.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func prepareDisableUser(v *visit, q url.Values) (*dialog, error) {
	if q.Get("subject") == "" {
		return &dialog{title: "Disable a user", submit: "Disable", danger: true, command: "pipectl user disable --issuer ISSUER --subject SUBJECT",
			text: "All sessions of the user end, and no new one begins until the user is enabled again.",
			fields: []field{
				{kind: "text", name: "subject", label: "User", hint: "as the audit log names the user"},
				{kind: "text", name: "issuer", label: "Issuer", hint: "as the agent's configuration names it"},
			}}, nil
	}
	resp, err := v.control.ListSessions(v.ctx, &controlv1.ListSessionsRequest{Issuer: q.Get("issuer"), Subject: q.Get("subject"), Limit: 500})
	if err != nil {
		return nil, err
	}
	open := plural(len(resp.Sessions), "session ends", "sessions end")
	return &dialog{title: "Disable " + q.Get("subject") + "?", submit: "Disable", danger: true,
		text:    open + ", and no new one begins until the user is enabled again.",
		command: userCommand("disable", q)}, nil
}

func runDisableUser(v *visit, q url.Values) (*outcome, error) {
	_, err := v.control.DisableUser(v.ctx, &controlv1.DisableUserRequest{Issuer: strings.TrimSpace(q.Get("issuer")), Subject: strings.TrimSpace(q.Get("subject"))})
	return &outcome{title: "Disabled", text: q.Get("subject") + " can no longer sign in.", links: []navLink{{label: "Disabled users", path: agentPath("users")}}}, err
}

func prepareEnableUser(_ *visit, q url.Values) (*dialog, error) {
	return &dialog{title: "Enable " + q.Get("subject") + "?", submit: "Enable", text: "The user can sign in again. Sessions that were ended stay so.",
		command: userCommand("enable", q)}, nil
}

func runEnableUser(v *visit, q url.Values) (*outcome, error) {
	_, err := v.control.EnableUser(v.ctx, &controlv1.EnableUserRequest{Issuer: q.Get("issuer"), Subject: q.Get("subject")})
	return &outcome{title: "Enabled", text: q.Get("subject") + " can sign in again.", links: []navLink{{label: "Disabled users", path: agentPath("users")}}}, err
}

// receiver reads the receiver of notifications that a query names, which has dead letters.
func (v *visit) receiver(q url.Values) (*controlv1.ReceiverStatus, error) {
	state, err := v.control.GetStatus(v.ctx, &controlv1.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(state.Receivers, func(r *controlv1.ReceiverStatus) bool { return r.Name == q.Get("receiver") })
	switch {
	case i < 0:
		return nil, status.Errorf(codes.NotFound, "there is no receiver %q", q.Get("receiver"))
	case state.Receivers[i].DeadLetterCount == 0:
		return nil, status.Errorf(codes.FailedPrecondition, "no notification was given up for %s", state.Receivers[i].Name)
	}
	return state.Receivers[i], nil
}

// givenUp counts the dead letters of a receiver and names the newest and the oldest.
func givenUp(v *visit, r *controlv1.ReceiverStatus) []string {
	out := []string{plural(r.DeadLetterCount, "notification", "notifications") + " to " + r.Name}
	name := func(which string, d *controlv1.DeadLetter) {
		out = append(out, which+": "+d.Event+", given up "+ago(v.now, d.GivenUpAtMs)+": "+d.Error)
	}
	if len(r.DeadLetters) > 0 {
		name("the newest", r.DeadLetters[0])
	}
	if r.OldestDeadLetter != nil && r.DeadLetterCount > 1 {
		name("the oldest", r.OldestDeadLetter)
	}
	return out
}

func receiverAction(name, receiver string) string {
	return withQuery("/actions/"+name, url.Values{"receiver": {receiver}})
}

func prepareReplay(v *visit, q url.Values) (*dialog, error) {
	r, err := v.receiver(q)
	if err != nil {
		return nil, err
	}
	return &dialog{title: "Replay what " + r.Name + " did not get?", submit: "Replay", command: "pipectl dead-letter replay --receiver " + shellWord(r.Name),
		text: "Each notification is sent again from now on, with at least five new attempts, however old it is.", consequences: givenUp(v, r)}, nil
}

func runReplay(v *visit, q url.Values) (*outcome, error) {
	resp, err := v.control.ReplayDeadLetters(v.ctx, &controlv1.ReplayDeadLettersRequest{Receiver: q.Get("receiver")})
	return &outcome{title: "Replayed", text: plural(resp.GetCount(), "notification waits", "notifications wait") + " for delivery again.",
		links: []navLink{{label: "Show the receivers", path: agentPath("receivers")}}}, err
}

func prepareDrop(v *visit, q url.Values) (*dialog, error) {
	r, err := v.receiver(q)
	if err != nil {
		return nil, err
	}
	return &dialog{title: "Drop what " + r.Name + " did not get?", submit: "Drop", danger: true, confirm: r.Name, command: "pipectl dead-letter drop --receiver " + shellWord(r.Name),
		text: "All notifications that were given up for this receiver are deleted and cannot be replayed:", consequences: givenUp(v, r)}, nil
}

func runDrop(v *visit, q url.Values) (*outcome, error) {
	resp, err := v.control.DropDeadLetters(v.ctx, &controlv1.DropDeadLettersRequest{Receiver: q.Get("receiver")})
	return &outcome{title: "Dropped", text: plural(resp.GetCount(), "notification is", "notifications are") + " deleted.",
		links: []navLink{{label: "Show the receivers", path: agentPath("receivers")}}}, err
}
