package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newApplicationAdd(t *tool) *cobra.Command {
	path := &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{}}
	req := &apiservice.AddApplicationRequest{GitPath: path}
	var kind string
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Add an application by the place of its configuration.",
		Long: `Add an application by the place of its configuration. --id keeps the ID that
PipeCD gave it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			number, ok := modelv1.ApplicationKind_value[kind]
			if !ok {
				return hint(fmt.Errorf("unsupported application kind %s", kind), "the kinds are: %s; this agent runs KUBERNETES", strings.Join(kindNames(), ", "))
			}
			req.Kind = modelv1.ApplicationKind(number)
			return callAndReport(cmd, t, "Successfully added application id = %s", func(ctx context.Context, c *client) (string, error) {
				resp, err := c.AddApplication(ctx, req)
				if err != nil {
					return "", unknown(failed("failed to add application", err),
						"'pipectl status' shows the agent's ID and its repositories; 'pipectl application candidates' what can be added")
				}
				return resp.GetApplicationId(), nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Name, "app-name", "", "The application name.")
	flags.StringVar(&kind, "app-kind", "", fmt.Sprintf("The kind of application. (%s)", strings.Join(kindNames(), "|")))
	flags.StringVar(&req.PipedId, "piped-id", "", "The ID of the agent that is to run the application.")
	flags.StringVar(&req.PlatformProvider, "platform-provider", "", "The platform provider: one of the agent's configuration.")
	flags.StringVar(&path.Repo.Id, "repo-id", "", "The repository ID: one of the agent's configuration.")
	flags.StringVar(&path.Path, "app-dir", "", "The path from the root of the repository to the application's directory.")
	flags.StringVar(&path.ConfigFilename, "config-file-name", "app.pipecd.yaml", "The name of the configuration file.")
	flags.StringToStringVar(&req.Labels, "labels", nil, "The labels of the application, as key=value,key2=value2.")
	flags.StringVar(&req.Description, "description", "", "The description of the application.")
	flags.StringVar(&req.ApplicationId, "id", "", "The application's ID, such as the one from PipeCD. Empty derives it from the location.")
	return required(cmd, "app-name", "app-kind", "piped-id", "platform-provider", "repo-id", "app-dir")
}

// callAndReport makes one call and reports the returned ID on stderr.
func callAndReport(cmd *cobra.Command, t *tool, message string, call func(context.Context, *client) (id string, err error)) error {
	log, err := t.logs.logger(cmd)
	if err != nil {
		return err
	}
	id, err := ask(cmd, t, call)
	if err != nil {
		return err
	}
	log.infof(message, id)
	return nil
}

func newApplicationDisable(t *tool) *cobra.Command {
	req := &apiservice.DisableApplicationRequest{}
	cmd := &cobra.Command{
		Use:   "disable",
		Short: "Disable an application: no new deployment of it starts, a running one continues.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return callAndReport(cmd, t, "Successfully disable application id = %s", func(ctx context.Context, c *client) (string, error) {
				resp, err := c.DisableApplication(ctx, req)
				if err != nil {
					return "", unknownApplication(failed("failed to disable application", err))
				}
				return resp.GetApplicationId(), nil
			})
		},
	}
	cmd.Flags().StringVar(&req.ApplicationId, "app-id", "", "The application ID.")
	return required(cmd, "app-id")
}

func newApplicationEnable(t *tool) *cobra.Command {
	req := &apiservice.EnableApplicationRequest{}
	cmd := &cobra.Command{
		Use:   "enable",
		Short: "Enable an application that was disabled.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return callAndReport(cmd, t, "Successfully enabled application id = %s", func(ctx context.Context, c *client) (string, error) {
				resp, err := c.EnableApplication(ctx, req)
				if err != nil {
					return "", unknownApplication(failed("failed to enable application", err))
				}
				return resp.GetApplicationId(), nil
			})
		},
	}
	cmd.Flags().StringVar(&req.ApplicationId, "app-id", "", "The application ID.")
	return required(cmd, "app-id")
}

func newApplicationDelete(t *tool) *cobra.Command {
	d := &deletion{}
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Unregister an application; with --cascade also delete its objects.",
		Long: `Unregister an application. With --cascade also delete what was applied for it,
after showing it and a question, or with --yes without one. --dry-run only shows
it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.cascade {
				return d.cascading(cmd, t)
			}
			if d.dryRun {
				return hint(errors.New("dry-run shows what --cascade would delete"), "add --cascade, or omit --dry-run")
			}
			return callAndReport(cmd, t, "Successfully deleted application id = %s", func(ctx context.Context, c *client) (string, error) {
				resp, err := c.DeleteApplication(ctx, &apiservice.DeleteApplicationRequest{ApplicationId: d.id})
				if err != nil {
					return "", unknownApplication(failed("failed to delete application", err))
				}
				return resp.GetApplicationId(), nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&d.id, "app-id", "", "The application ID.")
	flags.BoolVar(&d.cascade, "cascade", false, "Also delete from the cluster what the agent applied for the application and still owns.")
	flags.BoolVar(&d.dryRun, "dry-run", false, "With cascade, only show what would be deleted.")
	flags.BoolVarP(&d.yes, "yes", "y", false, "With cascade, do not ask.")
	d.register(flags, 10*time.Minute)
	return required(cmd, "app-id")
}

// deletion deletes an application with its applied objects.
type deletion struct {
	wait
	id                   string
	cascade, dryRun, yes bool
}

// cascading shows the objects to delete, asks for confirmation, and waits until they
// are deleted.
func (d *deletion) cascading(cmd *cobra.Command, t *tool) error {
	p, err := t.printer(cmd, formatTable)
	if err != nil {
		return err
	}
	return d.with(cmd, t, func(ctx context.Context) error {
		plan, err := d.request(ctx, true)
		if err != nil {
			return err
		}
		if err := p.print(plan, func(p *printer) error { return p.objects(plan.GetObjects()) }); err != nil || d.dryRun {
			return err
		}
		question := fmt.Sprintf("Delete application %s and %s from the cluster?", d.id, count(len(plan.GetObjects()), "object"))
		if err := confirm(cmd, d.yes, question); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, d.timeout)
		defer cancel()
		resp, err := d.request(ctx, false)
		if err != nil {
			return err
		}
		return d.answered(ctx, resp.GetCommandId(), "delete the application", "Successfully deleted application id = "+d.id)
	})
}

func (d *deletion) request(ctx context.Context, dryRun bool) (*controlv1.DeleteApplicationResponse, error) {
	resp, err := d.client.control.DeleteApplication(ctx, &controlv1.DeleteApplicationRequest{ApplicationId: d.id, Cascade: true, DryRun: dryRun})
	if err != nil {
		return nil, unknownApplication(failed("failed to delete application", err))
	}
	return resp, nil
}

// objects lists live objects.
func (p *printer) objects(refs []*modelv1.ObjectRef) error {
	t := newTable(fixed("KIND"), fixed("NAMESPACE"), fixed("NAME"), flexible("CLUSTER"))
	for _, o := range refs {
		t.add(o.GetKind(), o.GetNamespace(), o.GetName(), o.GetCluster())
	}
	return p.table(t, "No objects.", "")
}

// count formats a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
