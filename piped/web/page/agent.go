package page

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// agentView is the state of the agent itself.
type agentView struct {
	state    *controlv1.GetStatusResponse
	problems []problem
	strip    *strip
}

// agentTab is a tab of the view Agent. An empty tab name in the address is the first one that the
// caller may open.
type agentTab struct {
	name, label string
	permitted   func(*visit) bool
	show        func(*visit) (*screen, error)
}

// agentTabs are the tabs of the view Agent.
func agentTabs() []agentTab {
	viewer := func(v *visit) bool { return v.everywhere("view") }
	keeper := func(v *visit) bool { return v.everywhere("keys") }
	anyone := func(*visit) bool { return true }
	return []agentTab{
		{"status", "Status", viewer, showAgentStatus},
		{"receivers", "Receivers", viewer, showReceivers},
		{"config", "Configuration", func(v *visit) bool { return v.everywhere("administer") }, showAgentConfig},
		{"keys", "API keys", keeper, showKeys},
		{"sessions", "Sessions", anyone, showSessions},
		{"users", "Disabled users", keeper, showUsers},
		{"audit", "Audit log", anyone, showAudit},
	}
}

// agentPath returns the address of a tab, with a query as pairs of names and values.
func agentPath(tab string, pairs ...string) string {
	q := url.Values{"tab": {tab}}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return withQuery("/agent", q)
}

// changedQuery returns a path with a query in which a parameter is set, or removed if the value
// is empty. Setting anything but the cursor leads to the first page.
func changedQuery(path string, q url.Values, name, value string) string {
	q = maps.Clone(q)
	q.Del("cursor")
	q.Del(name)
	if value != "" {
		q.Set(name, value)
	}
	return withQuery(path, q)
}

// showAgent shows the tab of the address.
func showAgent(v *visit) (*screen, error) {
	name := v.query().Get("tab")
	for _, t := range agentTabs() {
		if t.name == name || name == "" && t.permitted(v) {
			s, err := t.show(v)
			if err != nil {
				return nil, err
			}
			s.title, s.nav = cmp.Or(s.title, t.label+" · Agent"), "Agent"
			s.body = agentPage(v.agentTabs(t.name), s.body)
			return s, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "the view Agent has no tab %q", name)
}

// agentTabs returns the tabs that the caller may open.
func (v *visit) agentTabs(current string) []tab {
	var out []tab
	for _, t := range agentTabs() {
		if t.permitted(v) || t.name == current {
			out = append(out, tab{label: t.label, path: agentPath(t.name), current: t.name == current})
		}
	}
	return out
}

// readAgent reads the state of the agent.
func (v *visit) readAgent() (*agentView, error) {
	state, err := v.control.GetStatus(v.ctx, &controlv1.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	found, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{Facets: []string{"state"}, Limit: 1})
	if err != nil {
		return nil, err
	}
	return &agentView{state: state, problems: problemsOf(state, v.now), strip: newStrip(found.Facets, state, v.now)}, nil
}

func showAgentStatus(v *visit) (*screen, error) {
	a, err := v.readAgent()
	if err != nil {
		return nil, err
	}
	return &screen{body: agentStatus(v, a), live: "/agent/live", parts: a.statusParts(v), strip: a.strip}, nil
}

func showAgentConfig(v *visit) (*screen, error) {
	resp, err := v.control.GetAgentConfig(v.ctx, &controlv1.GetAgentConfigRequest{})
	shown := newConfigView(agentPath("config"), "the file", resp.GetYaml(), v.query().Get("only") == "configured")
	return &screen{body: agentConfig(v, resp, shown)}, err
}

func showReceivers(v *visit) (*screen, error) {
	a, err := v.readAgent()
	if err != nil {
		return nil, err
	}
	return &screen{body: receiversBody(v, a), live: "/agent/live?tab=receivers", parts: a.receiverParts(v), strip: a.strip}, nil
}

// agentSource is the stream of the tabs Status and Receivers.
type agentSource struct {
	everyApplication
	receivers bool
}

func liveAgent(v *visit) (source, error) {
	return agentSource{receivers: v.query().Get("tab") == "receivers"}, nil
}

func (s agentSource) parts(v *visit) ([]part, error) {
	a, err := v.readAgent()
	if err != nil {
		return nil, err
	}
	if s.receivers {
		return append(a.receiverParts(v), a.strip.part()), nil
	}
	return append(a.statusParts(v), a.strip.part()), nil
}

// statusParts returns the live parts of the tab Status, but the strip.
func (a *agentView) statusParts(v *visit) []part {
	s := a.state
	return []part{
		{"agent-headline", keyOf(a.headline(v)), agentHeadline(a.headline(v), a.problems)},
		{"agent-cards", keyOf(s.Agent, s.Store, s.Scripts, keyOfAll(s.SyncStates)), agentCards(v, s)},
		{"agent-queues", keyOfAll(s.Queues), queueTable(v, s.Queues)},
		{"agent-replicas", keyOf(s.Store), replicaTable(v, s.Store)},
		{"agent-clusters", keyOfAll(s.Clusters), clusterTable(v, s.Clusters)},
		{"agent-repositories", keyOfAll(s.Repositories), repositoryTable(v, s.Repositories)},
	}
}

func (a *agentView) receiverParts(v *visit) []part {
	return []part{{"receivers", keyOfAll(a.state.Receivers), receiverList(v, a.state.Receivers)}}
}

// headline is the first sentence of the tab Status.
func (a *agentView) headline(v *visit) string {
	s := a.state
	if len(a.problems) > 0 {
		list := make([]string, len(a.problems))
		for i, p := range a.problems {
			list[i] = p.short
		}
		return sentence(strings.Join(list, ", "))
	}
	waiting := int32(0)
	for _, q := range s.Queues {
		waiting += q.Waiting
	}
	text := fmt.Sprintf("All is well with the agent: %s and %s answer", plural(len(s.Clusters), "cluster", "clusters"), plural(len(s.Repositories), "repository", "repositories"))
	if waiting == 0 {
		return text + ", and no work waits."
	}
	return text + ", and " + plural(waiting, "item of work waits", "items of work wait") + "."
}

// clusterMark returns the mark of a cluster.
func clusterMark(c *controlv1.ClusterStatus) mark {
	switch {
	case c.Reachable && len(c.WatchProblems) > 0:
		return mark{icon: "warning", word: "Partly watched", role: roleWarn}
	case c.Reachable:
		return mark{icon: "check", word: "Reachable", role: roleOK}
	case c.Error != "":
		return mark{icon: "cloud-off", word: "Away", role: roleMuted}
	}
	return mark{icon: "clock", word: "Not asked yet", role: roleMuted}
}

// repositoryMark returns the mark of a repository.
func repositoryMark(r *controlv1.RepositoryStatus) mark {
	switch {
	case r.Error != "":
		return mark{icon: "cloud-off", word: "Away", role: roleMuted}
	case r.CheckedAtMs == 0:
		return mark{icon: "clock", word: "Not read yet", role: roleMuted}
	}
	return mark{icon: "check", word: "Read", role: roleOK}
}

// queueMark returns the mark of a queue: it is full if items wait while it works at its limit.
func queueMark(q *controlv1.QueueStatus) mark {
	switch {
	case q.Waiting > 0 && q.Limit > 0 && q.Active >= q.Limit:
		return mark{icon: "warning", word: "At its limit", role: roleWarn}
	case q.Active > 0 || q.Waiting > 0:
		return mark{icon: "ring", word: "Working", role: roleActive, progress: 50}
	}
	return mark{icon: "check", word: "Idle", role: roleOK}
}

// receiverMark returns the mark of a receiver.
func receiverMark(r *controlv1.ReceiverStatus) mark {
	switch {
	case r.DeadLetterCount > 0:
		return mark{icon: "warning", word: "Lost some", role: roleBad}
	case r.Error != "":
		return mark{icon: "cloud-off", word: "Failing", role: roleWarn}
	case r.Pending > 0:
		return mark{icon: "ring", word: "Delivering", role: roleActive, progress: 50}
	}
	return mark{icon: "check", word: "Delivered", role: roleOK}
}

// receiversHeadline is the first sentence of the tab Receivers.
func receiversHeadline(list []*controlv1.ReceiverStatus) string {
	var pending, lost int32
	for _, r := range list {
		pending += r.Pending
		lost += r.DeadLetterCount
	}
	switch {
	case lost > 0:
		return plural(lost, "notification was", "notifications were") + " given up, " + fmt.Sprint(pending) + " wait for delivery."
	case pending > 0:
		return plural(pending, "notification waits", "notifications wait") + " for delivery; none was given up."
	}
	return "Every notification was delivered."
}

// deadLetters returns the notifications that were given up, the newest first, by receiver.
func deadLetters(list []*controlv1.ReceiverStatus) []deadLetter {
	var out []deadLetter
	for _, r := range list {
		for _, d := range r.DeadLetters {
			out = append(out, deadLetter{r.Name, d})
		}
	}
	slices.SortStableFunc(out, func(a, b deadLetter) int { return cmp.Compare(b.letter.GivenUpAtMs, a.letter.GivenUpAtMs) })
	return out
}

type deadLetter struct {
	receiver string
	letter   *controlv1.DeadLetter
}

// ofLimit returns how much work a queue does of what it may.
func ofLimit(q *controlv1.QueueStatus) string {
	if q.Limit == 0 {
		return fmt.Sprint(q.Active)
	}
	return fmt.Sprintf("%d of %d", q.Active, q.Limit)
}

// storeSize returns a number of bytes in words.
func storeSize(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// syncFilter, providerFilter and repositoryFilter return the addresses of lists of applications.
func syncFilter(c *controlv1.SyncStateCount) string {
	return withQuery("/applications", url.Values{"sync": {c.Status.String()}, "enabled": {"true"}})
}

func providerFilter(name string) string {
	return withQuery("/applications", url.Values{"provider": {name}})
}

func repositoryFilter(id string) string {
	return withQuery("/applications", url.Values{"repository": {id}})
}
