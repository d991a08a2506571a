package page

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// action is something that a user can do. Its dialog says what will happen and asks for what it
// needs; without a script the dialog is a page.
type action struct {
	permission string // "" for any caller
	prepare    func(v *visit, q url.Values) (*dialog, error)
	run        func(v *visit, q url.Values) (*outcome, error)
}

// actions are all actions by their name in addresses. Addresses name what an action is about as
// `application`, `deployment` and `stage`, `key`, `session`, `issuer` and
// `subject`, and `receiver`.
func actions() map[string]action {
	return map[string]action{
		"approve":       {"approve", prepareApprove, runApprove},
		"reject":        {"approve", prepareReject, runReject},
		"skip":          {"sync", prepareSkip, runSkip},
		"retry":         {"sync", prepareRetry, runRetry},
		"cancel":        {"cancel", prepareCancel, runCancel},
		"sync":          {"sync", prepareSync, runSync},
		"heal":          {"sync", prepareHeal, runSync},
		"rollback":      {"rollback", prepareRollback, runRollback},
		"enable":        {"enable", prepareEnable, runEnable},
		"disable":       {"enable", prepareDisable, runDisable},
		"confirm-prune": {"sync", preparePrune, runPrune},
		"adopt":         {"sync", prepareAdopt, runAdopt},
		"delete":        {"delete", prepareDelete, runDelete},
		"create-key":    {"keys", prepareCreateKey, runCreateKey},
		"disable-key":   {"keys", prepareDisableKey, runDisableKey},
		"end-session":   {"", prepareEndSession, runEndSession},
		"disable-user":  {"keys", prepareDisableUser, runDisableUser},
		"enable-user":   {"keys", prepareEnableUser, runEnableUser},

		"replay-dead-letters": {"administer", prepareReplay, runReplay},
		"drop-dead-letters":   {"administer", prepareDrop, runDrop},
	}
}

// dialog asks before an action.
type dialog struct {
	name         string // of the action
	title, text  string
	consequences []string // what is deleted or interrupted, in numbers and names
	fields       []field
	submit       string     // label of the button
	danger       bool       // it deletes or interrupts
	confirm      string     // name that must be typed; "" for none
	command      string     // the same with pipectl
	about        url.Values // what addresses name
	related      *related   // another action to choose instead; nil for none
	back         string
	wrong        string // what was wrong with the form
}

// related is an action that a dialog leads to, with the reason.
type related struct {
	text string
	link navLink
}

// field is an input of a dialog.
type field struct {
	kind              string // text, choice, check, hidden
	name, label, hint string
	value             string
	options           []option
}

type option struct {
	value, label, hint string
	chosen             bool
}

// outcome is what an action has started.
type outcome struct {
	title, text string
	links       []navLink
	failures    []string
	secret      string // shown once; "" for none
	command     string // ID; "" for none
	back        string
	to          string // leads to this local address instead
}

// confirmField is the input in which a name must be typed. aboutField is the input with what the
// action is about, as a query: a name arrives as it is, also one with control characters.
const (
	confirmField = "confirm"
	aboutField   = "about"
)

// applicationAction, deploymentAction and approvalAction return the addresses of dialogs.
func applicationAction(name, id string) string {
	return withQuery("/actions/"+name, url.Values{"application": {id}})
}

func deploymentAction(name, id string) string {
	return withQuery("/actions/"+name, url.Values{"deployment": {id}})
}

func stageAction(name, deployment, stage string) string {
	return withQuery("/actions/"+name, url.Values{"deployment": {deployment}, "stage": {stage}})
}

func approvalAction(name string, w waiting) string {
	return stageAction(name, w.deployment.GetId(), w.stage.GetId())
}

// shortcut returns the key of an action or a tab, "" for none.
func shortcut(label string) string {
	switch label {
	case "Sync":
		return "s"
	case "Approve":
		return "a"
	case "Drift", "Plan", "Diff":
		return "d"
	case "Log":
		return "l"
	}
	return ""
}

// findAction returns the action of a request. An action of which the caller may do nothing is
// denied before anything is read.
func (v *visit) findAction() (action, error) {
	name := v.r.PathValue("action")
	a, ok := actions()[name]
	if !ok {
		return a, status.Errorf(codes.NotFound, "there is no action %q", name)
	}
	if a.permission != "" && !v.somewhere(a.permission) {
		return a, status.Errorf(codes.PermissionDenied, "this needs the permission %q, which no role of %s grants", a.permission, v.caller.GetSubject())
	}
	return a, nil
}

// showAction shows the dialog of an action.
func showAction(v *visit) (*screen, error) {
	a, err := v.findAction()
	if err != nil {
		return nil, err
	}
	d, err := v.dialogOf(a, v.query())
	if err != nil {
		return nil, err
	}
	return &screen{title: d.title, body: actionPage(dialogForm(d)), part: dialogForm(d)}, nil
}

func (v *visit) dialogOf(a action, q url.Values) (*dialog, error) {
	d, err := a.prepare(v, q)
	if err != nil {
		return nil, err
	}
	d.name, d.back, d.about = v.r.PathValue("action"), cmp.Or(localPath(q.Get("back")), v.back()), url.Values{}
	for _, name := range []string{"application", "deployment", "stage", "key", "session", "issuer", "subject", "receiver"} {
		if q.Has(name) {
			d.about[name] = q[name]
		}
	}
	return d, nil
}

// back returns where the user came from.
func (v *visit) back() string {
	if here := v.here(); v.fragment() {
		return here
	}
	u, err := url.Parse(v.r.Referer())
	if err != nil || u.Host != v.r.Host {
		return "/"
	}
	return cmp.Or(localPath((&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()), "/")
}

// localPath returns a path of this server, "" if the target could lead elsewhere.
func localPath(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.IsAbs() || u.Host != "" || len(u.Path) == 0 || u.Path[0] != '/' || len(u.Path) > 1 && (u.Path[1] == '/' || u.Path[1] == '\\') {
		return ""
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

// runAction does an action and shows what it has started.
func runAction(v *visit) (*screen, error) {
	if err := v.r.ParseForm(); err != nil {
		return nil, status.Error(codes.InvalidArgument, "the form cannot be read: "+err.Error())
	}
	a, err := v.findAction()
	if err != nil {
		return nil, err
	}
	q, err := withAbout(v.r.PostForm)
	if err != nil {
		return nil, err
	}
	d, err := v.dialogOf(a, q)
	if err != nil {
		return nil, err
	}
	if d.confirm != "" && q.Get(confirmField) != d.confirm {
		d.wrong = "Type " + d.confirm + " to confirm. Nothing was done."
		return &screen{title: d.title, code: http.StatusUnprocessableEntity, body: actionPage(dialogForm(d)), part: dialogForm(d)}, nil
	}
	o, err := a.run(v, q)
	if err != nil {
		return nil, err
	}
	if o.to != "" {
		return v.leave(o.to), nil
	}
	o.back = d.back
	return &screen{title: o.title, body: actionPage(outcomeOf(o)), part: outcomeOf(o)}, nil
}

// leave returns a screen that leads from a dialog, or from its page, to a view.
func (v *visit) leave(to string) *screen {
	if !v.fragment() {
		return &screen{to: to}
	}
	v.w.Header().Set("HX-Redirect", to)
	return &screen{body: templ.NopComponent}
}

// withAbout returns a form with what its action is about. What the user chose in the form counts.
func withAbout(form url.Values) (url.Values, error) {
	q, err := url.ParseQuery(form.Get(aboutField))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the form cannot be read: "+err.Error())
	}
	maps.Copy(q, form)
	return q, nil
}

// application reads the application that a query names.
func (v *visit) application(q url.Values) (*modelv1.Application, error) {
	resp, err := v.api.GetApplication(v.ctx, &apiservice.GetApplicationRequest{ApplicationId: q.Get("application")})
	return resp.GetApplication(), err
}

// deployment reads the deployment that a query names.
func (v *visit) deployment(q url.Values) (*modelv1.Deployment, error) {
	resp, err := v.api.GetDeployment(v.ctx, &apiservice.GetDeploymentRequest{DeploymentId: q.Get("deployment")})
	return resp.GetDeployment(), err
}

// command returns the state of a command.
func (v *visit) command(id string) (*modelv1.Command, error) {
	resp, err := v.api.GetCommand(v.ctx, &apiservice.GetCommandRequest{CommandId: id})
	return resp.GetCommand(), err
}

// showCommand shows what became of a command, for the dialog that waits for it.
func showCommand(v *visit) (*screen, error) {
	c, err := v.command(v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &screen{title: "Request", body: actionPage(commandState(c)), part: commandState(c)}, nil
}

// reasonField is the field for the reason of a decision.
func reasonField(hint string) field {
	return field{kind: "text", name: "reason", label: "Reason", hint: hint}
}

// strategies are the choices of how to sync.
func strategies() field {
	return field{kind: "choice", name: "strategy", label: "How", options: []option{
		{"AUTO", "As the change needs", "the planner decides between the two", true},
		{"QUICK_SYNC", "Quick sync", "apply everything at once", false},
		{"PIPELINE", "Pipeline", "run the stages of app.pipecd.yaml", false},
	}}
}

// strategyOf returns the chosen strategy.
func strategyOf(q url.Values) modelv1.SyncStrategy {
	return modelv1.SyncStrategy(modelv1.SyncStrategy_value[q.Get("strategy")])
}

// applications reads the applications that a query names.
func (v *visit) applications(q url.Values) ([]*modelv1.Application, error) {
	if n := len(q["application"]); n > maxCommands {
		return nil, status.Errorf(codes.InvalidArgument, "%d applications are named, at most %d can be chosen together", n, maxCommands)
	}
	var out []*modelv1.Application
	for _, id := range q["application"] {
		resp, err := v.api.GetApplication(v.ctx, &apiservice.GetApplicationRequest{ApplicationId: id})
		if err != nil {
			return nil, err
		}
		out = append(out, resp.GetApplication())
	}
	if len(out) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no application is named: select at least one")
	}
	return out, nil
}

// commanded is a response that names the command that will do what was asked for.
type commanded interface{ GetCommandId() string }

// started returns the outcome of an action about an application.
func started(title, text string, app *modelv1.Application, c commanded) *outcome {
	return &outcome{title: title, text: text, command: c.GetCommandId(), links: []navLink{{label: "Open " + app.GetName(), path: applicationPath(app.GetId(), app.GetName())}}}
}

// decided returns the outcome of an action about a deployment.
func decided(title, text string, d *modelv1.Deployment, c commanded) *outcome {
	return &outcome{title: title, text: text, command: c.GetCommandId(), links: []navLink{{label: "Open the deployment", path: deploymentPath(d.GetId())}}}
}
