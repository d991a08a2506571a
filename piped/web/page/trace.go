package page

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// traceView is what came of a change.
type traceView struct {
	q      url.Values
	trace  *controlv1.DeploymentTrace
	origin int64 // time of the first thing of the trace, milliseconds
	strip  *strip
}

// tracePath returns the address of the trace of a commit, an event or a deployment.
func tracePath(kind, id string) string {
	return withQuery("/trace", url.Values{kind: {id}})
}

// showTrace shows the trace that the address asks for; without one it asks what to trace.
func showTrace(v *visit) (*screen, error) {
	q := v.query()
	if text := strings.TrimSpace(q.Get("q")); text != "" {
		return v.findTrace(text)
	}
	if len(q) == 0 {
		return &screen{title: "Trace", nav: "Events", body: traceStart()}, nil
	}
	t, err := v.readTrace(q)
	if err != nil {
		return nil, err
	}
	return &screen{title: "Trace of " + t.subject(), nav: "Events", body: tracePage(v, t), live: withQuery("/trace/live", q), parts: t.parts(v), strip: t.strip}, nil
}

// commitPattern matches a commit's hash or its beginning.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// findTrace leads to the trace of what a person typed.
func (v *visit) findTrace(text string) (*screen, error) {
	repository, digits, isPullRequest := strings.Cut(text, "#")
	switch {
	case isPullRequest:
		return &screen{to: withQuery("/trace", url.Values{"repository": {repository}, "pull-request": {digits}})}, nil
	case uuid.Validate(text) == nil:
		_, err := v.control.GetDeploymentTrace(v.ctx, &controlv1.GetDeploymentTraceRequest{EventId: text})
		if status.Code(err) == codes.NotFound {
			return &screen{to: tracePath("deployment", text)}, nil
		}
		return &screen{to: tracePath("event", text)}, err
	case commitPattern.MatchString(strings.ToLower(text)):
		return &screen{to: tracePath("commit", strings.ToLower(text))}, nil
	}
	return nil, status.Errorf(codes.InvalidArgument, "%q is neither a commit nor an ID nor a pull request such as apps#12", text)
}

// traceRequest returns the request of an address.
func traceRequest(q url.Values) (*controlv1.GetDeploymentTraceRequest, error) {
	req := &controlv1.GetDeploymentTraceRequest{Commit: q.Get("commit"), EventId: q.Get("event"), DeploymentId: q.Get("deployment"), RepositoryId: q.Get("repository")}
	if digits := q.Get("pull-request"); digits != "" {
		number, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || number <= 0 {
			return nil, status.Errorf(codes.InvalidArgument, "pull-request: %q is not the number of a pull request", digits)
		}
		req.PullRequest = int32(number)
	}
	return req, nil
}

// readTrace reads the trace of an address.
func (v *visit) readTrace(q url.Values) (*traceView, error) {
	req, err := traceRequest(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.GetDeploymentTrace(v.ctx, req)
	if err != nil {
		return nil, err
	}
	t := &traceView{q: q, trace: resp.GetTrace()}
	t.origin = t.begin()
	t.strip, err = v.readStrip()
	return t, err
}

// traceSource is the stream of a trace.
type traceSource struct {
	everyApplication
	q   url.Values
	who string // the caller, who may view only plan previews that it requested
}

func liveTrace(v *visit) (source, error) {
	q := v.query()
	q.Del("from")
	return traceSource{q: q, who: v.identity()}, nil
}

func (s traceSource) opened() string { return s.who }

func (s traceSource) parts(v *visit) ([]part, error) {
	t, err := v.readTrace(s.q)
	if err != nil {
		return nil, err
	}
	return append(t.parts(v), t.strip.part()), nil
}

// parts returns the live part, but the strip.
func (t *traceView) parts(v *visit) []part {
	return []part{{"trace", keyOf(t.trace), traceBody(v, t)}}
}

// begin returns when the first event was registered, or else the first commit was made.
func (t *traceView) begin() int64 {
	first := int64(0)
	for _, e := range t.trace.GetEvents() {
		if e.RegisteredAtMs > 0 && (first == 0 || e.RegisteredAtMs < first) {
			first = e.RegisteredAtMs
		}
	}
	for _, c := range t.trace.GetCommits() {
		if c.CommittedAtMs > 0 && (first == 0 || c.CommittedAtMs < first) {
			first = c.CommittedAtMs
		}
	}
	return first
}

// subject names what is traced.
func (t *traceView) subject() string {
	switch {
	case t.q.Has("pull-request"):
		return t.q.Get("repository") + "#" + t.q.Get("pull-request")
	case t.q.Has("event"):
		for _, e := range t.trace.GetEvents() {
			if e.EventId == t.q.Get("event") {
				return withoutEscapes(e.Name + " " + e.Data)
			}
		}
	case t.q.Has("deployment"):
		if d := t.find(t.q.Get("deployment")); d != nil {
			return d.ApplicationName + " at " + short(d.GetDeployment().GetCommit())
		}
	}
	return short(cmp.Or(t.q.Get("commit"), t.q.Get("event"), t.q.Get("deployment")))
}

// find returns a deployment of the trace, nil if it has none with the ID.
func (t *traceView) find(id string) *controlv1.TracedDeployment {
	for _, c := range t.trace.GetCommits() {
		for _, d := range c.Deployments {
			if d.GetDeployment().GetDeploymentId() == id {
				return d
			}
		}
	}
	return nil
}

// headline is the first sentence of a trace.
func (t *traceView) headline() string {
	var all, succeeded, failed, active int
	last := int64(0)
	for _, c := range t.trace.GetCommits() {
		for _, d := range c.Deployments {
			all++
			last = max(last, d.GetDeployment().GetCompletedAtMs())
			switch d.GetDeployment().GetStatus() {
			case modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS:
				succeeded++
			case modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED:
				failed++
			default:
				active++
			}
		}
	}
	switch {
	case all == 0 && len(t.trace.GetCommits()) == 0:
		return t.subject() + " has not reached Git yet."
	case all == 0:
		return t.subject() + " is in Git, and nothing was deployed for it."
	case active > 0 && failed > 0:
		return fmt.Sprintf("%s is being deployed: %d of %s over, %d without success.", t.subject(), all-active, plural(all, "deployment", "deployments"), failed)
	case active > 0:
		return fmt.Sprintf("%s is being deployed: %d of %s over.", t.subject(), all-active, plural(all, "deployment", "deployments"))
	case failed == 0:
		return fmt.Sprintf("%s is live: %s succeeded%s.", t.subject(), plural(succeeded, "deployment", "deployments"), t.took(last))
	}
	return fmt.Sprintf("%s is not live everywhere: %d of %s did not succeed.", t.subject(), failed, plural(all, "deployment", "deployments"))
}

// took says how long it was from the first thing of the trace.
func (t *traceView) took(last int64) string {
	if t.origin == 0 || last < t.origin {
		return ""
	}
	return ", " + millis(last-t.origin) + " after the change"
}

// unwritten returns the events that no commit of the trace was written for.
func (t *traceView) unwritten() []*controlv1.TracedEvent {
	return slices.DeleteFunc(slices.Clone(t.trace.GetEvents()), func(e *controlv1.TracedEvent) bool {
		return slices.ContainsFunc(t.trace.GetCommits(), func(c *controlv1.TracedCommit) bool { return slices.Contains(c.EventIds, e.EventId) })
	})
}

// eventsOf returns the events of which a commit is the first one that they wrote.
func (t *traceView) eventsOf(commit *controlv1.TracedCommit) []*controlv1.TracedEvent {
	var out []*controlv1.TracedEvent
	for _, e := range t.trace.GetEvents() {
		first := slices.IndexFunc(t.trace.GetCommits(), func(c *controlv1.TracedCommit) bool { return slices.Contains(c.EventIds, e.EventId) })
		if first >= 0 && t.trace.Commits[first] == commit {
			out = append(out, e)
		}
	}
	return out
}

// offset returns a time as that from the first thing of the trace.
func (t *traceView) offset(ms int64) string {
	if ms == 0 || t.origin == 0 || ms <= t.origin {
		return ""
	}
	return "+" + millis(ms-t.origin)
}

// phase is a part of the time that a deployment took.
type phase struct {
	word     string
	role     role
	from, to int // permille of the deployment's time
	length   int64
}

// phasesOf returns the statuses of a deployment in which it spent time.
func phasesOf(v *visit, d *controlv1.TracedDeployment) []phase {
	if len(d.Phases) == 0 {
		return nil
	}
	end := func(p *controlv1.DeploymentPhase) int64 {
		return cmp.Or(p.ToMs, d.GetDeployment().GetCompletedAtMs(), v.now.UnixMilli())
	}
	from, to := d.Phases[0].FromMs, end(d.Phases[len(d.Phases)-1])
	var out []phase
	for _, p := range d.Phases {
		if length := end(p) - p.FromMs; length > 0 && to > from {
			m := deploymentMark(p.Status)
			out = append(out, phase{m.word, m.role, int((p.FromMs - from) * 1000 / (to - from)), int((end(p) - from) * 1000 / (to - from)), length})
		}
	}
	return out
}

// phaseText returns the phases in words.
func phaseText(list []phase) string {
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = strings.ToLower(p.word) + " " + millis(p.length)
	}
	return strings.Join(parts, ", ")
}

// triggerText says what caused a deployment.
func triggerText(d *controlv1.TracedDeployment) string {
	switch d.TriggerKind {
	case modelv1.TriggerKind_TRIGGER_KIND_ON_COMMIT:
		return "by the commit"
	case modelv1.TriggerKind_TRIGGER_KIND_ON_COMMAND:
		return "asked for by " + d.GetDeployment().GetBy()
	case modelv1.TriggerKind_TRIGGER_KIND_ON_OUT_OF_SYNC:
		return "by drift"
	case modelv1.TriggerKind_TRIGGER_KIND_ON_CHAIN:
		return "by its chain"
	}
	return ""
}

// pullRequestText says how a commit belongs to a pull request.
func pullRequestText(p *controlv1.TracedPullRequest) string {
	text := fmt.Sprintf("#%d", p.Number)
	switch p.Link {
	case controlv1.PullRequestLink_PULL_REQUEST_LINK_HEAD:
		return text + " (its head)"
	case controlv1.PullRequestLink_PULL_REQUEST_LINK_MERGED:
		return text + " (merged)"
	}
	return text
}

// tracedRolloutMark returns the mark of a rollout's outcome.
func tracedRolloutMark(o modelv1.RolloutOutcome) mark {
	switch o {
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING:
		return mark{icon: "ring", word: "Rolling out", role: roleActive, progress: 50}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_HELD:
		return mark{icon: "pause", word: "Held", role: roleAttention}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE:
		return mark{icon: "check", word: "Complete", role: roleOK}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_NO_ROLLOUT:
		return mark{icon: "dot", word: "Nothing to roll out", role: roleMuted}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED:
		return mark{icon: "cross", word: "Failed", role: roleBad}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_TIMED_OUT:
		return mark{icon: "clock", word: "Took too long", role: roleBad}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_SUPERSEDED:
		return mark{icon: "skip", word: "Superseded", role: roleMuted}
	case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_GONE:
		return mark{icon: "cross", word: "Deleted meanwhile", role: roleMuted}
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// rolloutSpan returns how long a rollout took, or takes.
func rolloutSpan(v *visit, r *controlv1.TracedRollout) string {
	if r.StartedAtMs == 0 {
		return ""
	}
	return millis(cmp.Or(r.CompletedAtMs, v.now.UnixMilli()) - r.StartedAtMs)
}

// onWeb reports whether an address is one of the web.
func onWeb(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// pullRequestPath returns the address of the trace of a pull request.
func pullRequestPath(repository string, number int32) string {
	return withQuery("/trace", url.Values{"repository": {repository}, "pull-request": {strconv.Itoa(int(number))}})
}
