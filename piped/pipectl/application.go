package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newApplication(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "application", Aliases: []string{"app"}, Short: "Manage applications."}
	cmd.AddCommand(newApplicationGet(t), newApplicationList(t), newApplicationSearch(t), newApplicationAdd(t), newApplicationDelete(t), newApplicationDisable(t),
		newApplicationEnable(t), newApplicationSync(t), newApplicationRollback(t), newApplicationCandidates(t), newApplicationConfig(t), newApplicationDrift(t),
		newApplicationResources(t), newApplicationTree(t), newApplicationObject(t), newApplicationEvents(t), newApplicationLogs(t), newApplicationRollouts(t), newApplicationAdoptions(t), newApplicationAdopt(t))
	return asGroup(cmd)
}

func newApplicationGet(t *tool) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show one application.",
		Long: `Show one application. As a table it answers whether the application is live, and if
not, why: its state and what differs from Git, its health, the images and commits
that run and are wanted, what it waits for, its last deployments and its last failure
with the reason (from the moment in which the rollback begins).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := t.printer(cmd, formatTerminal)
			if err != nil {
				return err
			}
			var live *modelv1.LiveState
			var summary *controlv1.ApplicationSummary
			app, err := ask(cmd, t, func(ctx context.Context, c *client) (*modelv1.Application, error) {
				if p.format == formatTable { // older agents do not have it
					if summary, err = c.summaryOf(ctx, id); err != nil || summary != nil {
						return summary.GetApplication(), err
					}
				}
				resp, err := c.GetApplication(ctx, &apiservice.GetApplicationRequest{ApplicationId: id})
				if err != nil {
					return nil, unknownApplication(failed("failed to get application", err))
				}
				if p.format == formatTable { // the JSON is PipeCD's, without live state
					live = c.liveOf(ctx, id)
				}
				return resp.Application, nil
			})
			if err != nil {
				return err
			}
			return p.print(app, func(p *printer) error {
				if summary != nil {
					return p.summary(summary)
				}
				return p.application(app, live)
			})
		},
	}
	cmd.Flags().StringVar(&id, "app-id", "", "The application ID.")
	return required(cmd, "app-id")
}

// application shows one application; live is its live state, nil if unknown.
func (p *printer) application(a *modelv1.Application, live *modelv1.LiveState) error {
	state := colored(a.GetSyncState().GetStatus().String())
	if a.GetDisabled() {
		state = colored("DISABLED")
	}
	path := a.GetGitPath()
	err := p.fields(
		field{"ID", a.GetId()},
		field{"Name", a.GetName()},
		field{"Kind", a.GetKind()},
		field{"State", state},
		field{"Since", p.when(a.GetSyncStateSinceMs())},
		field{"Reason", a.GetSyncState().GetShortReason()},
		field{"Waits for", p.waits(a.GetLastDeployment().GetWait())},
		field{"Held", p.held(a.GetHold())},
		field{"Notice", cell{text: a.GetNotice(), color: yellow}},
		field{"Health", health(live)},
		field{"Images", images(live)},
		field{"Cluster", a.GetPlatformProvider()},
		field{"Repository", path.GetRepo().GetId()},
		field{"File", path.GetPath() + "/" + path.GetConfigFilename()},
		field{"Labels", pairs(a.GetLabels())},
		field{"Description", a.GetDescription()},
		field{"Runs commit", a.GetRunningCommit()},
		field{"Last success", a.GetMostRecentlySuccessfulDeployment().GetDeploymentId()},
		field{"Last deployment", p.lastDeployment(a)},
		field{"Last failure", p.lastFailure(a)},
		field{"Agent", a.GetPipedId()},
		field{"Updated", p.when(a.GetUpdatedAt() * 1000)},
	)
	return errors.Join(err, p.reason(a.GetSyncState()))
}

// held describes the hold of an application; "" without one.
func (p *printer) held(h *modelv1.ApplicationHold) cell {
	if h == nil {
		return cell{}
	}
	return cell{fmt.Sprintf("at commit %s by %s, %s: %s", shortHash(h.GetCommit()), h.GetHeldBy(), p.when(h.GetSinceMs()), h.GetReason()), yellow}
}

// heldShort is a short form of held.
func (p *printer) heldShort(h *modelv1.ApplicationHold) cell {
	if h == nil {
		return cell{}
	}
	return cell{fmt.Sprintf("at %s by %s, %s", shortHash(h.GetCommit()), h.GetHeldBy(), p.age(h.GetSinceMs())), yellow}
}

// reason writes the full sync reason if the short one does not contain all of it.
func (p *printer) reason(s *modelv1.ApplicationSyncState) error {
	full := strings.TrimSpace(s.GetReason())
	if full == "" || full == s.GetShortReason() {
		return nil
	}
	return errors.Join(p.linef("\n%s", p.paint(cyan, "Reason in full")), p.diff(full))
}

func newApplicationList(t *tool) *cobra.Command {
	req := &apiservice.ListApplicationsRequest{}
	var labels []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the list of applications, last updated first.",
		Long: `Show the list of applications, last updated first: 100 unless --limit says
otherwise. On a terminal it is a table with the state of the last deployment
(result, commit, age) and what it waits for.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkKind(req.Kind); err != nil {
				return err
			}
			if req.Labels, err = labelsFromPairs(labels); err != nil {
				return err
			}
			return query(cmd, t, formatTerminal, func(ctx context.Context, c *client) (*apiservice.ListApplicationsResponse, error) {
				resp, err := c.ListApplications(ctx, req)
				if err != nil {
					return nil, failed("failed to list application", err)
				}
				return resp, nil
			}, func(p *printer, resp *apiservice.ListApplicationsResponse) error {
				return p.applications(resp, int(req.Limit))
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Name, "app-name", "", "The application name.")
	flags.StringVar(&req.Kind, "app-kind", "", fmt.Sprintf("The kind of application. (%s)", strings.Join(kindNames(), "|")))
	flags.StringVar(&req.PipedId, "piped-id", "", "The ID of the agent that runs the applications.")
	flags.BoolVar(&req.Disabled, "disabled", false, "Show the disabled applications instead of the enabled ones.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.Int32Var(&req.Limit, "limit", 100, "The most applications to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor from the end of the previous list.")
	return required(cmd)
}

// applications returns the table of applications; limit is the requested page size.
func (p *printer) applications(resp *apiservice.ListApplicationsResponse, limit int) error {
	t := newTable(fixed("ID"), flexible("NAME"), fixed("STATE"), flexible("PATH"), flexible("CLUSTER"), fixed("COMMIT"),
		flexible("LAST DEPLOYMENT"), optional("WAITS FOR"), optional("HELD"), optional("LABELS"), fixed("UPDATED"))
	for _, a := range resp.GetApplications() {
		state := colored(a.GetSyncState().GetStatus().String())
		if a.GetDisabled() {
			state = colored("DISABLED")
		}
		t.add(a.GetId(), a.GetName(), state, a.GetGitPath().GetPath(), a.GetPlatformProvider(), shortHash(a.GetRunningCommit()),
			p.result(a.GetLastDeployment()), p.waits(a.GetLastDeployment().GetWait()), p.heldShort(a.GetHold()), pairs(a.GetLabels()), p.ageSeconds(a.GetUpdatedAt()))
	}
	return p.table(t, "No applications.", ifMore(t, limit, resp))
}
