package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// searchOrders are the values of --sort.
func searchOrders() map[string]controlv1.ApplicationOrder {
	return map[string]controlv1.ApplicationOrder{
		"name": controlv1.ApplicationOrder_APPLICATION_ORDER_NAME, "updated": controlv1.ApplicationOrder_APPLICATION_ORDER_UPDATED,
		"deployed": controlv1.ApplicationOrder_APPLICATION_ORDER_LAST_DEPLOYED, "state": controlv1.ApplicationOrder_APPLICATION_ORDER_STATE,
	}
}

func newApplicationSearch(t *tool) *cobra.Command {
	req := &controlv1.SearchApplicationsRequest{}
	var filters []string
	var order string
	cmd := &cobra.Command{
		Use:   "search [WORD ...]",
		Short: "Search applications.",
		Long: `Search applications. Each word must occur in the name, the repository, the path, a
label (as NAME:VALUE), the description or the platform provider.

Facets are state, sync, health, kind, provider, repository, enabled, deployment,
label (names of labels) and label:NAME (values of the label NAME). --filter selects
by them: one of the values given for a facet must match, in each facet. --facet
counts the applications by value; the count ignores the filter of the same facet.`,
		Example: `  pipectl application search payments --facet=state --facet=label:team
  pipectl application search --filter=state=FAILED --filter=state=DRIFTED --sort=state`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.Text = strings.Join(args, " ")
			if req.Filters, err = facetFilters(filters); err != nil {
				return err
			}
			var ok bool
			if req.Order, ok = searchOrders()[order]; !ok {
				return hint(fmt.Errorf("unknown order %q", order), "--sort is name, updated, deployed or state")
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.SearchApplicationsResponse, error) {
				resp, err := c.control.SearchApplications(ctx, req)
				if err != nil {
					return nil, failed("failed to search applications", err)
				}
				return resp, nil
			}, (*printer).found)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&filters, "filter", nil, "A facet and a value that must match, as FACET=VALUE. Can be given several times.")
	flags.StringArrayVar(&req.Facets, "facet", nil, "A facet to count. Can be given several times.")
	flags.StringVar(&order, "sort", "name", "The order: name, updated, deployed or state (the worst first).")
	flags.Int32Var(&req.Limit, "limit", 50, "The most applications to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor from the end of the previous list.")
	cmd = required(cmd)
	cmd.Args = cobra.ArbitraryArgs
	return cmd
}

// facetFilters parses pairs FACET=VALUE, in the order of the facets' first values.
func facetFilters(pairs []string) (filters []*controlv1.FacetFilter, err error) {
	known := map[string]*controlv1.FacetFilter{}
	for _, pair := range pairs {
		facet, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, hint(fmt.Errorf("filter %q has no value", pair), "write it as FACET=VALUE, such as state=FAILED")
		}
		f := known[facet]
		if f == nil {
			f = &controlv1.FacetFilter{Facet: facet}
			known[facet] = f
			filters = append(filters, f)
		}
		f.Values = append(f.Values, value)
	}
	return filters, nil
}

// found prints the result of a search: facets, then applications.
func (p *printer) found(resp *controlv1.SearchApplicationsResponse) error {
	var errs []error
	for _, f := range resp.GetFacets() {
		errs = append(errs, p.facet(f))
	}
	t := newTable(fixed("ID"), flexible("NAME"), flexible("STATE"), flexible("PATH"), flexible("CLUSTER"), fixed("COMMIT"),
		flexible("LAST DEPLOYMENT"), optional("REASON"), optional("LABELS"))
	for _, a := range resp.GetApplications() {
		t.add(a.GetId(), a.GetName(), stateCell(a.GetStatus(), a.GetDisabled()), a.GetRepositoryId()+"/"+a.GetConfigPath(), a.GetPlatformProvider(),
			shortHash(a.GetRunningCommit()), p.brief(a.GetLastDeployment()), a.GetStatus().GetReason(), pairs(a.GetLabels()))
	}
	errs = append(errs, p.table(t, "No applications.", resp.GetCursor()))
	if n := resp.GetTotal(); int(n) > len(t.rows) {
		errs = append(errs, p.linef("%d applications match.", n))
	}
	return errors.Join(errs...)
}

// facet prints the counts of a facet on one line.
func (p *printer) facet(f *controlv1.Facet) error {
	var counts []string
	for _, v := range f.GetValues() {
		value := v.GetValue()
		if value == "" {
			value = "(none)"
		}
		counts = append(counts, fmt.Sprintf("%s %d", clean(value), v.GetCount()))
	}
	if n := f.GetOmitted(); n > 0 {
		counts = append(counts, fmt.Sprintf("and %d more values", n))
	}
	return p.linef("%s  %s", p.paint(cyan, clean(f.GetName())+":"), strings.Join(counts, ", "))
}

// stateColors are the colours of states; others are yellow.
func stateColors() map[controlv1.ApplicationState]color {
	return map[controlv1.ApplicationState]color{
		controlv1.ApplicationState_APPLICATION_STATE_SYNCED: green, controlv1.ApplicationState_APPLICATION_STATE_FAILED: red,
		controlv1.ApplicationState_APPLICATION_STATE_DEGRADED: red, controlv1.ApplicationState_APPLICATION_STATE_INVALID_CONFIG: red,
		controlv1.ApplicationState_APPLICATION_STATE_UNKNOWN: faint,
	}
}

// stateCell returns the word of a state.
func stateCell(s *controlv1.ApplicationStatus, disabled bool) cell {
	c, ok := stateColors()[s.GetState()]
	if !ok {
		c = yellow
	}
	word := s.GetWord()
	if disabled {
		word, c = word+" (disabled)", faint
	}
	return cell{text: word, color: c}
}

// brief describes the result of a deployment and how long ago it was created.
func (p *printer) brief(d *controlv1.DeploymentBrief) cell {
	if d == nil {
		return cell{}
	}
	c := deploymentStatus(d.GetStatus())
	c.text = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.text, shortHash(d.GetCommit()), p.age(max(d.GetCompletedAtMs(), d.GetCreatedAtMs()))))
	return c
}

// summaryOf returns the summary of an application, nil if the agent does not have the method.
func (c *client) summaryOf(ctx context.Context, id string) (*controlv1.ApplicationSummary, error) {
	resp, err := c.control.GetApplicationSummary(ctx, &controlv1.GetApplicationSummaryRequest{ApplicationId: id})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, nil
	case err != nil:
		return nil, unknownApplication(failed("failed to get application", err))
	}
	return resp.GetSummary(), nil
}

// summary answers on one screen whether an application is live, and if not, why.
func (p *printer) summary(s *controlv1.ApplicationSummary) error {
	a := s.GetApplication()
	path := a.GetGitPath()
	err := errors.Join(p.linef("%s\n", clean(s.GetHeadline())), p.fields(
		field{"ID", a.GetId()},
		field{"Name", a.GetName()},
		field{"Kind", a.GetKind()},
		field{"State", stateCell(s.GetStatus(), a.GetDisabled())},
		field{"Since", p.when(s.GetStatus().GetSinceMs())},
		field{"Reason", s.GetStatus().GetReason()},
		field{"Sync", colored(a.GetSyncState().GetStatus().String())},
		field{"Waits for", p.waits(s.GetWait())},
		field{"Held", p.held(a.GetHold())},
		field{"Notice", cell{text: a.GetNotice(), color: yellow}},
		field{"Differs", cell{text: s.GetDrift().GetText(), color: yellow}},
		field{"Health", p.healthOf(s)},
		field{"Runs commit", s.GetRunningCommit()},
		field{"Runs images", artifacts(s.GetRunningVersions())},
		field{"Wanted commit", unlike(s.GetWantedCommit(), s.GetRunningCommit())},
		field{"Wanted images", unlike(artifacts(s.GetWantedVersions()), artifacts(s.GetRunningVersions()))},
		field{"Cluster", a.GetPlatformProvider()},
		field{"Repository", path.GetRepo().GetId()},
		field{"File", path.GetPath() + "/" + path.GetConfigFilename()},
		field{"Labels", pairs(a.GetLabels())},
		field{"Description", a.GetDescription()},
		field{"Last failure", p.failure(s)},
		field{"Agent", a.GetPipedId()},
		field{"Updated", p.when(a.GetUpdatedAt() * 1000)},
	))
	return errors.Join(err, p.openApprovals(s), p.lastDeployments(s), p.reason(a.GetSyncState()))
}

// artifacts returns the deployed artifacts, such as images, with their versions.
func artifacts(list []*modelv1.ArtifactVersion) string {
	var out []string
	for _, v := range list {
		if v.GetUrl() != "" {
			out = append(out, v.GetUrl())
		} else {
			out = append(out, v.GetName()+" "+v.GetVersion())
		}
	}
	return strings.Join(out, ", ")
}

// unlike returns value unless it equals other.
func unlike(value, other string) string {
	if value == other {
		return ""
	}
	return value
}

func (p *printer) healthOf(s *controlv1.ApplicationSummary) cell {
	health := word(s.GetHealth(), "HEALTH_")
	if health == "" && s.GetHealthReason() == "" {
		return cell{}
	}
	if health == "" {
		health = "UNKNOWN"
	}
	c := colored(health)
	c.text += because(s.GetHealthReason())
	return c
}

// failure describes the last failure, without alarm if it is not the last deployment.
func (p *printer) failure(s *controlv1.ApplicationSummary) cell {
	f := s.GetLastFailure()
	c := p.brief(f)
	if f == nil {
		return c
	}
	c.text = f.GetDeploymentId() + " " + c.text + because(f.GetStatusReason())
	if list := s.GetDeployments(); len(list) > 0 && list[0].GetDeploymentId() != f.GetDeploymentId() {
		c.color = plain
	}
	return c
}

// openApprovals says how to approve what waits for it.
func (p *printer) openApprovals(s *controlv1.ApplicationSummary) error {
	var errs []error
	for _, w := range s.GetApprovals() {
		errs = append(errs, p.linef("\n%s", p.paint(yellow, fmt.Sprintf("Deployment %s waits for %s: pipectl deployment approve --deployment-id=%s",
			clean(w.GetDeploymentId()), clean(w.GetWait().GetWaitsFor()), clean(w.GetDeploymentId())))))
	}
	return errors.Join(errs...)
}

func (p *printer) lastDeployments(s *controlv1.ApplicationSummary) error {
	t := newTable(fixed("ID"), fixed("RESULT"), fixed("COMMIT"), flexible("BY"), fixed("AGE"), fixed("TOOK"), flexible("REASON"))
	for _, d := range s.GetDeployments() {
		took := ""
		if ms := d.GetDurationMs(); ms > 0 {
			took = short(time.Duration(ms) * time.Millisecond)
		}
		t.add(d.GetDeploymentId(), deploymentStatus(d.GetStatus()), shortHash(d.GetCommit()), d.GetBy(), p.age(d.GetCreatedAtMs()), took, d.GetStatusReason())
	}
	return p.section("Last deployments", t)
}
