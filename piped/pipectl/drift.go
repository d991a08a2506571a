package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newApplicationDrift(t *tool) *cobra.Command {
	req := &controlv1.GetDriftReportRequest{}
	var watch, exit bool
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Show how an application differs from Git.",
		Long: `Show how an application differs from Git: the agent's last report, or, with
--refresh or --diff, the current state. With --watch, show every change until
Ctrl-C.

The exit code is 0 whether it differs or not. With --exit-code it is 0 if it does
not differ, 7 if it does, and 1 if that is unknown now, because a deployment is
running, the configuration is invalid or a cluster does not answer.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return watchDrift(cmd, t, &req.ApplicationId)
			}
			var report *modelv1.DriftReport
			err := query(cmd, t, formatTable, func(ctx context.Context, c *client) (*modelv1.DriftReport, error) {
				resp, err := c.control.GetDriftReport(ctx, req)
				if err != nil {
					return nil, unknownApplication(failed("failed to get the drift report", err))
				}
				report = resp.GetReport()
				return report, nil
			}, (*printer).drift)
			if err != nil || !exit {
				return err
			}
			return driftCode(report)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.ApplicationId, "app-id", "", "The application ID.")
	flags.BoolVar(&req.Diff, "diff", false, "Show the current diff of each object from Git to live.")
	flags.BoolVar(&req.Refresh, "refresh", false, "Compare with the cluster now instead of showing the last report.")
	flags.BoolVar(&watch, "watch", false, "Show a line for each change until Ctrl-C.")
	flags.BoolVar(&exit, "exit-code", false, "End with 7 if the application differs from Git, and with 1 if that is unknown.")
	for _, other := range []string{"diff", "refresh", "exit-code"} {
		cmd.MarkFlagsMutuallyExclusive("watch", other)
	}
	return required(cmd, "app-id")
}

// driftCode returns the error for an application that is not in sync.
func driftCode(r *modelv1.DriftReport) error {
	switch s := r.GetStatus(); s {
	case modelv1.ApplicationSyncStatus_SYNCED:
		return nil
	case modelv1.ApplicationSyncStatus_OUT_OF_SYNC:
		return withCode(hint(errors.New("the application differs from Git"),
			"'pipectl application sync --app-id=%s' brings it back to Git", r.GetApplicationId()), ExitOutOfSync)
	default:
		return hint(fmt.Errorf("it is unknown whether the application differs from Git: it is %s", s), "try again later, with --refresh to compare at once")
	}
}

func (p *printer) drift(r *modelv1.DriftReport) error {
	err := p.fields(
		field{"Application", named(r.GetApplicationName(), r.GetApplicationId())},
		field{"State", colored(r.GetStatus().String())},
		field{"Cluster", r.GetCluster()},
		field{"Commit", r.GetCommit()},
		field{"Held", p.held(r.GetHold())},
		field{"Compared", compared(r)},
		field{"Checked", p.when(r.GetCheckedAtMs())},
		field{"Drifts since", p.when(r.GetBeganAtMs())},
		field{"Ended", endedBy(r.GetEnd(), p.when(r.GetEndedAtMs()))},
		field{"Not deployed", commits(r.GetUndeployedCommits())},
		field{"Incomplete", cell{text: r.GetIncompleteReason(), color: yellow}},
	)
	if r.GetStatus() == modelv1.ApplicationSyncStatus_SYNCED && len(r.GetObjects()) == 0 {
		return errors.Join(err, p.linef("\nNothing differs from Git."))
	}
	return errors.Join(err, p.section("Differences", p.differences(r)), p.section("Notes", notes(r)), p.driftDiffs(r.GetObjects()))
}

// differences returns a table with a row for each differing field.
func (p *printer) differences(r *modelv1.DriftReport) *table { return p.driftTable(r.GetObjects()) }

// driftTable returns a table with a row for each differing field.
func (p *printer) driftTable(objects []*modelv1.ObjectDrift) *table {
	t := newTable(fixed("KIND"), fixed("OBJECT"), fixed("DIFFERS"), flexible("FIELD"), flexible("IN GIT"), flexible("LIVE"), flexible("CHANGED BY"))
	for _, o := range objects {
		kind, name, how := o.GetObject().GetKind(), objectName(o.GetObject()), colored(word(o.GetKind(), "DRIFT_KIND_"))
		if len(o.GetFields()) == 0 {
			t.add(kind, name, how, "", "", "", "")
		}
		for _, f := range o.GetFields() {
			by := f.GetManager()
			if at := p.age(f.GetChangedAtMs()); by != "" && at != "" {
				by += ", " + at + " ago"
			}
			t.add(kind, name, how, f.GetPath(), f.GetGitValue(), f.GetLiveValue(), by)
		}
	}
	return t
}

// notes returns a table with a row for each object that has a note.
func notes(r *modelv1.DriftReport) *table {
	t := newTable(fixed("KIND"), fixed("OBJECT"), flexible("NOTE"))
	for _, o := range r.GetObjects() {
		if o.GetNote() != "" {
			t.add(o.GetObject().GetKind(), objectName(o.GetObject()), o.GetNote())
		}
	}
	return t
}

func (p *printer) driftDiffs(objects []*modelv1.ObjectDrift) error {
	for _, o := range objects {
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

// compared describes how many objects were compared; "" for a report without a
// comparison.
func compared(r *modelv1.DriftReport) string {
	if r.GetComparedObjects() == 0 {
		return ""
	}
	return count(int(r.GetComparedObjects()), "object")
}

// endedBy describes how and when a period of drift ended, "" if it has not.
func endedBy(end modelv1.DriftEnd, when string) string {
	how := map[modelv1.DriftEnd]string{
		modelv1.DriftEnd_DRIFT_END_DEPLOYED:  "a deployment brought it back to Git",
		modelv1.DriftEnd_DRIFT_END_REVERTED:  "the change in the cluster was reverted",
		modelv1.DriftEnd_DRIFT_END_ACCEPTED:  "Git or the ignore rules allow what is live",
		modelv1.DriftEnd_DRIFT_END_ABANDONED: "the application was disabled or deleted",
	}[end]
	if how == "" || when == "" {
		return how
	}
	return how + ", " + when
}

// commits joins the short hashes of undeployed commits.
func commits(hashes []string) string {
	var out []string
	for _, hash := range hashes {
		out = append(out, shortHash(hash))
	}
	return strings.Join(out, ", ")
}

// watchDrift shows a line for each change of how an application differs from Git.
func watchDrift(cmd *cobra.Command, t *tool, id *string) error {
	p, log, c, err := t.live(cmd)
	if err != nil {
		return err
	}
	defer c.close()
	open := func(ctx context.Context) (grpc.ServerStreamingClient[controlv1.WatchDriftResponse], error) {
		return c.control.WatchDrift(ctx, &controlv1.WatchDriftRequest{ApplicationIds: []string{*id}})
	}
	known := false
	return follow(cmd.Context(), following{what: "drift", say: log.infof, tick: func() {}}, open, func(m *controlv1.WatchDriftResponse) error {
		if r := m.GetReport(); r != nil {
			known = true
			return p.print(r, func(p *printer) error { return p.driftChange(r) })
		}
		if !known {
			return hint(fmt.Errorf("application %q not found", *id), "'pipectl application list' shows the IDs")
		}
		return nil
	})
}

// driftChange writes the line of a report.
func (p *printer) driftChange(r *modelv1.DriftReport) error {
	at, s := max(r.GetCheckedAtMs(), r.GetEndedAtMs()), colored(r.GetStatus().String())
	var found []string
	if n := len(r.GetObjects()); n > 0 {
		found = append(found, count(n, "object"))
	}
	if n := len(r.GetUndeployedCommits()); n > 0 {
		found = append(found, count(n, "commit")+" not deployed")
	}
	says := strings.Join(found, ", ")
	switch {
	case r.GetEndedAtMs() != 0:
		s, says = colored("ENDED"), endedBy(r.GetEnd(), "")
	case r.GetId() == "":
		says = r.GetIncompleteReason()
	}
	return p.linef("%s  %s%s", time.UnixMilli(at).UTC().Format(time.TimeOnly), p.paint(s.color, s.text), because(says))
}
