package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newApplicationResources(t *tool) *cobra.Command {
	req := &controlv1.GetLiveStateRequest{}
	cmd := &cobra.Command{
		Use:   "resources",
		Short: "Show the live objects of an application with their health.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*modelv1.LiveState, error) {
				resp, err := c.control.GetLiveState(ctx, req)
				if err != nil {
					return nil, unknownApplication(failed("failed to get the live state", err))
				}
				return resp.GetLiveState(), nil
			}, (*printer).liveState)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.ApplicationId, "app-id", "", "The application ID.")
	flags.BoolVar(&req.Children, "children", false, "Also show what the objects created: ReplicaSets, Pods, Jobs.")
	return required(cmd, "app-id")
}

func (p *printer) liveState(s *modelv1.LiveState) error {
	t := newTable(fixed("KIND"), fixed("NAMESPACE"), fixed("NAME"), fixed("VARIANT"), fixed("HEALTH"), fixed("READY"), fixed("AGE"), flexible("REASON"))
	for _, o := range s.GetObjects() {
		p.liveObject(t, o, "")
	}
	if len(t.rows) == 0 {
		return p.linef("No objects.")
	}
	return errors.Join(
		p.fields(field{"Health", colored(word(s.GetHealth(), "HEALTH_"))},
			field{"Incomplete", cell{text: s.GetIncompleteReason(), color: yellow}}),
		p.section("Objects", t))
}

// liveObject adds an object and, indented below it, what it created.
func (p *printer) liveObject(t *table, o *modelv1.LiveObject, indent string) {
	ready := ""
	if o.GetReplicas() > 0 || o.GetAvailableReplicas() > 0 {
		ready = fmt.Sprintf("%d/%d", o.GetAvailableReplicas(), o.GetReplicas())
	}
	ref := o.GetObject()
	t.add(indent+ref.GetKind(), ref.GetNamespace(), ref.GetName(), o.GetVariant(), colored(word(o.GetHealth(), "HEALTH_")), ready, p.age(o.GetCreatedAtMs()), o.GetHealthReason())
	for _, child := range o.GetChildren() {
		p.liveObject(t, child, indent+"  ")
	}
	if n := o.GetChildrenLeftOut(); n > 0 {
		t.add(fmt.Sprintf("%s  and %d more", indent, n), " ", " ", " ", " ", " ", " ", " ")
	}
}

func newApplicationDrift(t *tool) *cobra.Command {
	req := &controlv1.GetDriftReportRequest{}
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Show how an application differs from Git now.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*modelv1.DriftReport, error) {
				resp, err := c.control.GetDriftReport(ctx, req)
				if err != nil {
					return nil, unknownApplication(failed("failed to get the drift report", err))
				}
				return resp.GetReport(), nil
			}, (*printer).drift)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.ApplicationId, "app-id", "", "The application ID.")
	flags.BoolVar(&req.Diff, "diff", false, "Show the differences of each object from Git to live.")
	flags.BoolVar(&req.Refresh, "refresh", false, "Compare with the cluster now instead of showing the last report.")
	return required(cmd, "app-id")
}

func (p *printer) drift(r *modelv1.DriftReport) error {
	err := p.fields(
		field{"Application", named(r.GetApplicationName(), r.GetApplicationId())},
		field{"State", colored(r.GetStatus().String())},
		field{"Commit", r.GetCommit()},
		field{"Compared", count(int(r.GetComparedObjects()), "object")},
		field{"Checked", p.when(r.GetCheckedAtMs())},
		field{"Drifts since", p.when(r.GetBeganAtMs())},
		field{"Not deployed", strings.Join(r.GetUndeployedCommits(), ", ")},
		field{"Incomplete", cell{text: r.GetIncompleteReason(), color: yellow}},
	)
	t := newTable(fixed("KIND"), fixed("OBJECT"), fixed("DIFFERS"), flexible("FIELD"), flexible("IN GIT"), flexible("LIVE"), flexible("CHANGED BY"))
	for _, o := range r.GetObjects() {
		kind, name, how := o.GetObject().GetKind(), objectName(o.GetObject()), word(o.GetKind(), "DRIFT_KIND_")
		if len(o.GetFields()) == 0 {
			t.add(kind, name, how, "", "", "", "")
		}
		for _, f := range o.GetFields() {
			t.add(kind, name, how, f.GetPath(), f.GetGitValue(), f.GetLiveValue(), f.GetManager())
		}
	}
	return errors.Join(err, p.section("Differences", t), p.driftDiffs(r))
}

func (p *printer) driftDiffs(r *modelv1.DriftReport) error {
	for _, o := range r.GetObjects() {
		if o.GetDiff() == "" {
			continue
		}
		heading := clean(o.GetObject().GetKind() + " " + objectName(o.GetObject()))
		if err := errors.Join(p.linef("\n%s", p.paint(cyan, heading)), p.diff(o.GetDiff())); err != nil {
			return err
		}
	}
	return nil
}
