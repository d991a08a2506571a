package notify

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Notice is one event as it is told to a receiver, with what it is about. Receivers
// do not change it.
type Notice struct {
	Event   deploy.Event
	Key     string // the idempotency key: the same in each attempt, and in no other notice
	Attempt int    // 1 is the first

	Details deploy.EventPayload // what the event's payload says

	// Application is nil when the event is about none, or about one that is not
	// stored.
	Application *deploy.Application
	// Deployment is the one the event is about, in the status that the event tells
	// of, although it may have gone on since; nil when the event is about none, or
	// when it is not kept any more. Stage is one of its stages.
	Deployment *deploy.Deployment
	Stage      *deploy.Stage

	// Mentions are whom the application's configuration has mentioned.
	Mentions []deploy.Mention
}

// ApplicationName returns the name of the application, "" when it is about none.
func (n Notice) ApplicationName() string {
	switch {
	case n.Deployment != nil:
		return n.Deployment.ApplicationName
	case n.Application != nil:
		return n.Application.Name
	}
	return n.Details.Application
}

// Labels returns the labels of the application, as they were when its deployment was
// made if the event is about one.
func (n Notice) Labels() map[string]string {
	switch {
	case n.Deployment != nil:
		return n.Deployment.Labels
	case n.Application != nil:
		return n.Application.Labels
	}
	return nil
}

// Commit returns the commit that the event is about; nil when it names none.
func (n Notice) Commit() *deploy.Commit {
	switch {
	case n.Details.Commit != nil:
		return n.Details.Commit
	case n.Deployment != nil:
		return &n.Deployment.Trigger.Commit
	}
	return nil
}

// Order returns what joins notices that are to be told in order: the deployment, or
// else the application, or else the agent.
func (n Notice) Order() string {
	switch {
	case n.Event.DeploymentID != "":
		return "deployment/" + n.Event.DeploymentID
	case n.Event.ApplicationID != "":
		return "application/" + n.Event.ApplicationID
	}
	return "piped"
}

// Mentioned returns the Slack accounts and groups that the application's configuration
// has mentioned for this event: those for its name and those for every one, each once.
// As in PipeCD nobody is mentioned for stages and for the agent itself.
func (n Notice) Mentioned() (accounts, groups []string) {
	if g := n.Event.Type.Group(); g == deploy.GroupStage || g == deploy.GroupPiped {
		return nil, nil
	}
	for _, m := range n.Mentions {
		if m.Event != "*" && m.Event != string(n.Event.Type) {
			continue
		}
		accounts = append(append(accounts, m.Slack...), m.SlackUsers...)
		groups = append(groups, m.SlackGroups...)
	}
	for i, a := range accounts {
		accounts[i] = strings.TrimPrefix(a, "@")
	}
	for i, g := range groups {
		groups[i] = strings.TrimSuffix(strings.TrimPrefix(g, "<!subteam^"), ">")
	}
	return distinct(accounts), distinct(groups)
}

// distinct returns each text once, in the order of the first.
func distinct(list []string) []string {
	var out []string
	for _, text := range list {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// library reads what events are about, each thing once. What is stored and cannot be
// read, such as a damaged row, is as if it were not stored: one such thing holds up no
// notifications.
type library struct {
	store        Store
	unreadable   func(id string, err error)
	applications map[string]*deploy.Application
	deployments  map[string]*deploy.Deployment
}

func (c *Courier) newLibrary() *library {
	return &library{store: c.Store, unreadable: c.sayUnreadable, applications: map[string]*deploy.Application{}, deployments: map[string]*deploy.Deployment{}}
}

// notice returns e as it is told.
func (l *library) notice(ctx context.Context, e deploy.Event, attempt int) (Notice, error) {
	n := Notice{Event: e, Key: e.Key, Attempt: attempt, Details: e.Details()}
	var err error
	if n.Application, err = found(ctx, l, l.applications, e.ApplicationID, l.store.Application); err != nil {
		return n, err
	}
	d, err := found(ctx, l, l.deployments, e.DeploymentID, l.store.Deployment)
	if err != nil {
		return n, err
	}
	if d != nil {
		n.Deployment, n.Stage = asTold(*d, e, n.Details)
	}
	about := d
	if about == nil && n.Application != nil && n.Application.LastTriggered != nil {
		about, err = found(ctx, l, l.deployments, n.Application.LastTriggered.DeploymentID, l.store.Deployment)
	}
	if about != nil {
		n.Mentions = mentionsOf(about)
	}
	return n, err
}

// sayUnreadable logs once of each thing that it cannot be read.
func (c *Courier) sayUnreadable(id string, err error) {
	if _, said := c.unreadable.LoadOrStore(id, struct{}{}); !said {
		c.Logger.Error("notifications tell only in part what this is about, for it cannot be read", "subject", id, "error", err)
	}
}

// found reads what has an ID unless it was read before; nil if there is no such
// thing that can be read. An error says that the store is not there.
func found[T any](ctx context.Context, l *library, known map[string]*T, id string, read func(context.Context, string) (T, error)) (*T, error) {
	v, ok := known[id]
	if id == "" || ok {
		return v, nil
	}
	switch got, err := read(ctx, id); {
	case err == nil:
		v = &got
	case deploy.IsKind(err, deploy.Internal):
		l.unreadable(id, err)
	case !deploy.IsKind(err, deploy.NotFound):
		return nil, err
	}
	known[id] = v
	return v, nil
}

// asTold returns d and the stage as they were when e happened, as far as e tells.
func asTold(d deploy.Deployment, e deploy.Event, told deploy.EventPayload) (*deploy.Deployment, *deploy.Stage) {
	d = d.Clone()
	switch {
	case told.To == "":
	case e.StageID == "":
		if d.Status = deploy.Status(told.To); !d.Status.Completed() {
			d.CompletedAt = time.Time{}
		}
		d.StatusReason, d.UpdatedAt = told.Reason, e.At
	default:
		if s := d.Stage(e.StageID); s != nil {
			s.Status, s.StatusReason, s.UpdatedAt = deploy.StageStatus(told.To), told.Reason, e.At
		}
	}
	return &d, d.Stage(e.StageID)
}

// mentionsOf returns whom the configuration has mentioned that d was made from.
func mentionsOf(d *deploy.Deployment) []deploy.Mention {
	var m struct {
		Mentions []deploy.Mention `json:"mentions"`
	}
	if json.Unmarshal([]byte(d.Metadata[deploy.MetaNotification]), &m) != nil {
		return nil // none, or what another version wrote: nobody is mentioned
	}
	return m.Mentions
}
