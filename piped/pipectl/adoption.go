package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newApplicationAdoptions(t *tool) *cobra.Command {
	req := &controlv1.ListAdoptionsRequest{}
	cmd := &cobra.Command{
		Use:   "adoptions",
		Short: "Show the applications whose live objects wait for a decision (adopt: review).",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListAdoptionsResponse, error) {
				resp, err := c.control.ListAdoptions(ctx, req)
				if err != nil {
					return nil, unknownApplication(failed("failed to list adoptions", err))
				}
				return resp, nil
			}, (*printer).adoptions)
		},
	}
	cmd.Flags().StringVar(&req.ApplicationId, "app-id", "", "The application ID. Empty means all.")
	return required(cmd)
}

func (p *printer) adoptions(resp *controlv1.ListAdoptionsResponse) error {
	if len(resp.GetAdoptions()) == 0 {
		return p.linef("No application awaits a decision.")
	}
	for i, a := range resp.GetAdoptions() {
		if i > 0 {
			if err := p.linef(""); err != nil {
				return err
			}
		}
		if err := p.adoption(a); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) adoption(a *controlv1.Adoption) error {
	err := p.fields(
		field{"Application", named(a.GetApplicationName(), a.GetApplicationId())},
		field{"Runs commit", a.GetRunningCommit()},
		field{"Waits since", p.when(a.GetSinceMs())},
		field{"Token", a.GetToken()},
	)
	t := newTable(fixed("KIND"), fixed("OBJECT"), fixed("CHANGES"), flexible("OWNER"), flexible("MANAGERS"))
	for _, o := range a.GetObjects() {
		changes := cell{text: "no", color: green}
		if o.GetChanges() {
			changes = cell{text: "yes", color: yellow}
		}
		t.add(o.GetObject().GetKind(), objectName(o.GetObject()), changes, o.GetOwnerApplicationId(), strings.Join(o.GetManagers(), ","))
	}
	return errors.Join(err, p.section("Would be taken over", t))
}

func newApplicationAdopt(t *tool) *cobra.Command {
	d := &adoption{}
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Take over the live objects of an application, or leave them alone and disable it.",
		Long: `Take over the live objects of an application, after a question. With --reject,
leave them alone and disable the application.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := t.printer(cmd, formatTable)
			if err != nil {
				return err
			}
			return d.with(cmd, t, func(ctx context.Context) error { return d.run(ctx, cmd, p) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&d.id, "app-id", "", "The application ID.")
	flags.BoolVar(&d.reject, "reject", false, "Leave the objects alone, and disable the application.")
	flags.StringVar(&d.token, "token", "", "The token of the list to decide on, from 'application adoptions'. Empty means the current list.")
	flags.BoolVarP(&d.yes, "yes", "y", false, "Do not ask.")
	d.register(flags, time.Minute)
	return required(cmd, "app-id")
}

// adoption is a user's decision about adopting live objects.
type adoption struct {
	wait
	id, token   string
	reject, yes bool
}

// run shows the objects, asks for confirmation, and waits until the agent has applied
// the decision.
func (d *adoption) run(ctx context.Context, cmd *cobra.Command, p *printer) error {
	list, err := d.client.control.ListAdoptions(ctx, &controlv1.ListAdoptionsRequest{ApplicationId: d.id})
	if err != nil {
		return unknownApplication(failed("failed to list adoptions", err))
	}
	if len(list.GetAdoptions()) == 0 {
		return hint(fmt.Errorf("application %s awaits no decision", d.id), "'pipectl application adoptions' shows those that do")
	}
	a := list.GetAdoptions()[0]
	if err := p.print(a, func(p *printer) error { return p.adoption(a) }); err != nil {
		return err
	}
	if d.token == "" {
		d.token = a.GetToken()
	}
	question := fmt.Sprintf("Take over %s for application %s?", count(len(a.GetObjects()), "object"), a.GetApplicationName())
	done := "The objects are taken over"
	if d.reject {
		question = fmt.Sprintf("Leave %s alone and disable application %s?", count(len(a.GetObjects()), "object"), a.GetApplicationName())
		done = "The objects are left alone, the application is disabled"
	}
	if err := confirm(cmd, d.yes, question); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	resp, err := d.client.control.DecideAdoption(ctx, &controlv1.DecideAdoptionRequest{ApplicationId: d.id, Accept: !d.reject, Token: d.token})
	if err != nil {
		return unknownApplication(failed("failed to decide on the adoption", err))
	}
	return d.answered(ctx, resp.GetCommandId(), "decide on the adoption", done)
}
