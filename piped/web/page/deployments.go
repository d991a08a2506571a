package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// deploymentsPage is the number of deployments on a page.
const deploymentsPage = 100

// deploymentFilters are the statuses that the list offers. Several have one word where a reader
// makes no difference.
func deploymentFilters() []struct {
	label    string
	statuses []modelv1.DeploymentStatus
} {
	return []struct {
		label    string
		statuses []modelv1.DeploymentStatus
	}{
		{"All", nil},
		{"Under way", []modelv1.DeploymentStatus{modelv1.DeploymentStatus_DEPLOYMENT_PENDING, modelv1.DeploymentStatus_DEPLOYMENT_PLANNED, modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK}},
		{"Succeeded", []modelv1.DeploymentStatus{modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS}},
		{"Failed", []modelv1.DeploymentStatus{modelv1.DeploymentStatus_DEPLOYMENT_FAILURE}},
		{"Cancelled", []modelv1.DeploymentStatus{modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED}},
	}
}

// statusNames returns statuses by their names in the address.
func statusNames(statuses []modelv1.DeploymentStatus) []string {
	var out []string
	for _, s := range statuses {
		out = append(out, strings.TrimPrefix(s.String(), "DEPLOYMENT_"))
	}
	return out
}

// deploymentsView is a list of deployments. A range of time selects those that ended in it.
type deploymentsView struct {
	*scope
	rows  []*modelv1.Deployment
	next  string // cursor
	first bool   // the page is the first one
}

func showDeployments(v *visit) (*screen, error) {
	s, err := v.readScope("/deployments", v.query(), nil, "")
	if err != nil {
		return nil, err
	}
	d := &deploymentsView{scope: s, first: !s.q.Has("cursor")}
	if !s.nothing() {
		if err := v.readDeployments(d); err != nil {
			return nil, err
		}
	}
	return &screen{title: "Deployments", body: deploymentsPageView(v, d)}, nil
}

func (v *visit) readDeployments(d *deploymentsView) error {
	req := &apiservice.ListDeploymentsRequest{ApplicationIds: d.applications, Labels: d.labels, Limit: deploymentsPage, Cursor: d.q.Get("cursor")}
	for _, name := range d.q["status"] {
		req.Statuses = append(req.Statuses, "DEPLOYMENT_"+name)
	}
	if !d.from.IsZero() {
		req.CompletedFromMs = d.from.UnixMilli()
	}
	if !d.to.IsZero() {
		req.CompletedToMs = d.to.UnixMilli()
	}
	found, err := v.listed(req)
	d.rows = found.GetDeployments()
	if len(d.rows) == deploymentsPage {
		d.next = found.GetCursor()
	}
	return err
}

// filters are links to the list by status.
func (d *deploymentsView) filters() []tab {
	var out []tab
	for _, f := range deploymentFilters() {
		q := d.clone()
		q.Del("status")
		names := statusNames(f.statuses)
		if len(names) > 0 {
			q["status"] = names
		}
		out = append(out, tab{label: f.label, path: withQuery(d.path, q), current: slices.Equal(d.q["status"], names)})
	}
	return out
}

// chips are the filters of the address but the status, each with the address without it.
func (d *deploymentsView) chips() []facetValue {
	out := d.scope.chips()
	if words := d.words(); words != "" {
		q := d.clone()
		q.Del("since")
		q.Del("until")
		out = append(out, facetValue{label: "ended " + words, path: withQuery(d.path, q)})
	}
	return out
}

// headline is the first sentence of the list.
func (d *deploymentsView) headline() string {
	what := "deployments"
	if !d.from.IsZero() || !d.to.IsZero() {
		what += " that ended " + d.words()
	}
	if len(d.rows) == 0 {
		return "No " + what + "."
	}
	if d.next != "" || !d.first {
		return "Page of " + plural(len(d.rows), "deployment", what) + ", the last changed first."
	}
	counts := map[modelv1.DeploymentStatus]int{}
	for _, row := range d.rows {
		counts[row.Status]++
	}
	var parts []string
	for _, f := range deploymentFilters()[1:] {
		n := 0
		for _, s := range f.statuses {
			n += counts[s]
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(f.label)))
		}
	}
	return plural(len(d.rows), strings.Replace(what, "deployments", "deployment", 1), what) + ": " + strings.Join(parts, ", ") + "."
}
