package page

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// maxCommands limits the commands of a view. The list of applications has fewer rows.
const maxCommands = 100

// commandsView shows what became of commands that were given together.
type commandsView struct {
	q     url.Values
	rows  []commandRow
	strip *strip
}

// commandRow is a command with the deployment that it has triggered.
type commandRow struct {
	id         string
	name       string              // of the application
	command    *modelv1.Command    // nil if there is none that the caller may view
	deployment *modelv1.Deployment // nil without one
}

// commandsPath returns the address of the view with some commands.
func commandsPath(ids []string) string { return withQuery("/commands", url.Values{"id": ids}) }

// showCommands shows what became of the commands that the address names.
func showCommands(v *visit) (*screen, error) {
	c, err := v.readCommands(v.query())
	if err != nil {
		return nil, err
	}
	return &screen{title: "Requests", nav: "Applications", body: commandsPage(v, c), live: withQuery("/commands/live", c.q), parts: c.parts(v), strip: c.strip}, nil
}

// readCommands reads the commands of an address, with their deployments and the names of the applications.
func (v *visit) readCommands(q url.Values) (*commandsView, error) {
	var ids []string
	for _, id := range q["id"] {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 || len(ids) > maxCommands {
		return nil, status.Errorf(codes.InvalidArgument, "the address names %d requests, not 1 to %d", len(ids), maxCommands)
	}
	c := &commandsView{q: url.Values{"id": ids}}
	var applications []string
	for _, id := range ids {
		row, err := v.readCommand(id)
		if err != nil {
			return nil, err
		}
		c.rows = append(c.rows, row)
		if row.command != nil {
			applications = append(applications, row.command.ApplicationId)
		}
	}
	entries := map[string]*controlv1.ApplicationEntry{}
	if err := v.readEntries(applications, entries); err != nil {
		return nil, err
	}
	for i, row := range c.rows {
		c.rows[i].name = cmp.Or(entries[row.command.GetApplicationId()].GetName(), row.deployment.GetApplicationName(), row.command.GetApplicationId(), row.id)
	}
	var err error
	c.strip, err = v.readStrip()
	return c, err
}

// readCommand reads a command to sync with its deployment. One that does not exist has no error.
func (v *visit) readCommand(id string) (commandRow, error) {
	row := commandRow{id: id}
	command, err := v.command(id)
	if err != nil || command.Type != modelv1.Command_SYNC_APPLICATION { // others may depend on who asks
		return row, unlessMissing(err)
	}
	row.command = command
	if deployment := row.command.GetMetadata()["TriggeredDeploymentID"]; deployment != "" {
		row.deployment, err = v.deployment(url.Values{"deployment": {deployment}})
	}
	return row, unlessMissing(err)
}

// unlessMissing returns an error, but none if it says that something does not exist.
func unlessMissing(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// commandsSource is the stream of the view. No change announces that a command was refused: the
// regular refresh finds it.
type commandsSource struct {
	q            url.Values
	applications []string // of the commands
}

func liveCommands(v *visit) (source, error) {
	c, err := v.readCommands(v.query())
	if err != nil {
		return nil, err
	}
	s := commandsSource{q: c.q, applications: []string{"-"}} // there is none with this ID
	for _, row := range c.rows {
		if row.command != nil {
			s.applications = append(s.applications, row.command.ApplicationId)
		}
	}
	return s, nil
}

func (s commandsSource) watch(v *visit) (receive, error) {
	return v.watchApplications(s.applications...)
}

func (s commandsSource) opened() string { return "" }

func (s commandsSource) parts(v *visit) ([]part, error) {
	c, err := v.readCommands(s.q)
	if err != nil {
		return nil, err
	}
	return append(c.parts(v), c.strip.part()), nil
}

// parts returns the live parts, but the strip.
func (c *commandsView) parts(v *visit) []part {
	parts := []part{{"commands", keyOf(c.headline()), commandsHeadline(c)}}
	for _, row := range c.rows {
		parts = append(parts, part{rowID("command", row.id), keyOf(row.command, row.deployment, row.name), commandLine(v, row)})
	}
	return parts
}

// headline says what became of the requests.
func (c *commandsView) headline() string {
	counts := map[string]int{}
	for _, row := range c.rows {
		counts[row.result()]++
	}
	var parts []string
	for _, result := range []string{"deployed", "failed", "cancelled", "not found", "no longer stored", "not finished"} {
		if n := counts[result]; n > 0 {
			parts = append(parts, plural(n, result, result))
		}
	}
	return plural(len(c.rows), "request", "requests") + " to sync: " + strings.Join(parts, ", ") + "."
}

// result says in a word what became of the command.
func (r commandRow) result() string {
	switch m := r.mark(); {
	case m.role == roleOK:
		return "deployed"
	case m.role == roleBad:
		return "failed"
	case r.deployment.GetCompletedAtMs() > 0:
		return "cancelled"
	case m == notFound:
		return "not found"
	case m == notStored:
		return "no longer stored"
	}
	return "not finished"
}

// The states of a command that does not exist, and of one whose deployment was removed.
var (
	notFound  = mark{icon: "cloud-off", word: "Not found", role: roleMuted}
	notStored = mark{icon: "cloud-off", word: "No longer stored", role: roleMuted}
)

// mark returns the state of the deployment, or of the command before there is one.
func (r commandRow) mark() mark {
	switch {
	case r.deployment != nil:
		return (&deploymentView{d: r.deployment}).mark()
	case r.command == nil:
		return notFound
	case r.command.Status == modelv1.CommandStatus_COMMAND_SUCCEEDED:
		return notStored
	case r.command.Status == modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET:
		return mark{icon: "clock", word: "Queued", role: roleMuted}
	}
	return mark{icon: "cross", word: "Refused", role: roleBad}
}

// reason says what the deployment or the command does, waits for, or why it failed.
func (r commandRow) reason() string {
	d := r.deployment
	if d == nil {
		waits := r.command.GetMetadata()["Waiting"]
		if waits != "" {
			waits = "The agent waits: " + waits
		}
		return cmp.Or(r.command.GetMetadata()["Reason"], waits)
	}
	w := d.GetWait()
	switch {
	case d.Status == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS:
		return "It took " + millis(took(d)) + "."
	case d.CompletedAtMs > 0, d.Status == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK, w.GetWaitsFor() == "":
		return d.StatusReason
	case strings.HasPrefix(w.WaitsFor, "Held: "):
		return w.WaitsFor
	case w.StageId != "" && !w.Approval:
		return strings.TrimPrefix(w.WaitsFor, "stage ")
	}
	return "It waits for " + w.WaitsFor + "."
}
