package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// aboutApplication makes cmd take an application as its first argument, or by --app-id, and
// then the arguments in more.
func aboutApplication(t *tool, cmd *cobra.Command, id *string, more ...string) *cobra.Command {
	cmd.Flags().StringVar(id, "app-id", "", "The application ID, instead of the argument NAME.")
	cmd = required(cmd)
	cmd.Args = cobra.ArbitraryArgs
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("app-id") {
			if len(args) == 0 {
				return hint(errors.New("no application is named"), "give its name or ID as the first argument; 'pipectl application list' shows them")
			}
			if err := cmd.Flags().Set("app-id", args[0]); err != nil {
				return err
			}
			args = args[1:]
		}
		if len(args) != len(more) {
			return hint(fmt.Errorf("%q needs the arguments %s", cmd.CommandPath(), strings.Join(append([]string{"NAME"}, more...), " ")),
				"see '%s --help'", cmd.CommandPath())
		}
		return run(cmd, args)
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 || cmd.Flags().Changed("app-id") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return t.complete(applicationNames)(cmd, args, begun)
	}
	return cmd
}

// selectorFlags are the flags that select one of several objects with the same kind and name.
type selectorFlags struct{ namespace, cluster string }

func (s *selectorFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.namespace, "namespace", "", "The namespace of the object. Empty means any.")
	flags.StringVar(&s.cluster, "cluster", "", "The platform provider of the object. Empty means any.")
}

// selector parses KIND/NAME or KIND.GROUP/NAME.
func (s *selectorFlags) selector(text string) (*controlv1.ObjectSelector, error) {
	kind, name, ok := strings.Cut(text, "/")
	kind, group, grouped := strings.Cut(kind, ".")
	if !ok || kind == "" || name == "" {
		return nil, hint(fmt.Errorf("%q names no object", text), "write it as KIND/NAME, such as Deployment/web, or KIND.GROUP/NAME")
	}
	out := &controlv1.ObjectSelector{Kind: kind, Name: name, Cluster: s.cluster}
	if grouped {
		out.Group = &group
	}
	if s.namespace != "" {
		out.Namespace = &s.namespace
	}
	return out, nil
}

func newApplicationObject(t *tool) *cobra.Command {
	req := &controlv1.GetLiveObjectRequest{}
	var selector selectorFlags
	var git bool
	cmd := &cobra.Command{
		Use:   "object NAME KIND/NAME",
		Short: "Show a live object of an application as YAML.",
		Long: `Show a live object of an application, or one that these created, such as a
ReplicaSet or a Pod, as YAML. Values of Secrets and decrypted secrets are masked.`,
		Example: `  pipectl application object web Deployment/web
  pipectl application object web Deployment/web --diff`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Object, err = selector.selector(args[0]); err != nil {
				return err
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.GetLiveObjectResponse, error) {
				resp, err := c.control.GetLiveObject(ctx, req)
				if err != nil {
					return nil, unknownObject(failed("failed to get the object", err))
				}
				return resp, nil
			}, func(p *printer, resp *controlv1.GetLiveObjectResponse) error {
				switch {
				case req.Diff:
					return p.objectDiff(resp)
				case req.ManagedFields:
					return p.managers(resp)
				case git:
					return p.manifest(resp.GetGitYaml(), "Git does not declare it.", resp.GetNote())
				}
				return p.manifest(resp.GetLiveYaml(), "It is not in the cluster.", resp.GetNote())
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&git, "git", false, "Show the object as Git declares it, rendered.")
	flags.BoolVar(&req.Diff, "diff", false, "Show how the live object differs from Git.")
	flags.BoolVar(&req.ManagedFields, "managed-fields", false, "Show who manages which fields, and since when.")
	selector.register(flags)
	cmd.MarkFlagsMutuallyExclusive("git", "diff", "managed-fields")
	return aboutApplication(t, cmd, &req.ApplicationId, "KIND/NAME")
}

// unknownObject adds where to find the names of applications and objects.
func unknownObject(err error) error {
	return unknown(err, "'pipectl application tree NAME' shows the objects of an application, 'pipectl application list' the applications")
}

// manifest writes YAML, or why there is none, with a note as a comment.
func (p *printer) manifest(yaml, none, note string) error {
	var errs []error
	if yaml == "" {
		errs = append(errs, p.linef("# %s", none))
	}
	if note != "" {
		errs = append(errs, p.linef("# %s", clean(note)))
	}
	_, err := fmt.Fprint(p.out, cleanLines(yaml))
	return errors.Join(append(errs, err)...)
}

// objectDiff shows how an object differs from Git.
func (p *printer) objectDiff(resp *controlv1.GetLiveObjectResponse) error {
	o, d := resp.GetObject(), resp.GetDrift()
	state := colored("UNKNOWN")
	switch {
	case d != nil:
		state = colored(modelv1.ApplicationSyncStatus_OUT_OF_SYNC.String())
	case resp.GetCompared():
		state = colored(modelv1.ApplicationSyncStatus_SYNCED.String())
	}
	err := p.fields(
		field{"Object", o.GetObject().GetKind() + " " + objectName(o.GetObject())},
		field{"Cluster", o.GetObject().GetCluster()},
		field{"Health", colored(word(o.GetHealth(), "HEALTH_"))},
		field{"State", state},
		field{"Commit", resp.GetGitCommit()},
		field{"Note", cell{text: joinedNotes(d.GetNote(), resp.GetNote()), color: yellow}},
	)
	switch {
	case d == nil && resp.GetCompared():
		return errors.Join(err, p.linef("\nNothing differs from Git."))
	case d == nil:
		return err
	}
	return errors.Join(err, p.section("Differences", p.driftTable([]*modelv1.ObjectDrift{d})), p.driftDiffs([]*modelv1.ObjectDrift{d}))
}

func joinedNotes(notes ...string) string {
	var out []string
	for _, n := range notes {
		if n != "" {
			out = append(out, n)
		}
	}
	return strings.Join(out, "; ")
}

// managers shows who manages which fields of an object.
func (p *printer) managers(resp *controlv1.GetLiveObjectResponse) error {
	t := newTable(fixed("MANAGER"), fixed("OPERATION"), fixed("CHANGED"), flexible("FIELD"))
	for _, m := range resp.GetManagers() {
		name := m.GetManager()
		if m.GetSubresource() != "" {
			name += " (" + m.GetSubresource() + ")"
		}
		fields := m.GetFields()
		if n := m.GetFieldsLeftOut(); n > 0 {
			fields = append(fields, fmt.Sprintf("and %d more", n))
		}
		for _, f := range fields {
			t.add(name, m.GetOperation(), p.age(m.GetChangedAtMs()), f)
		}
	}
	if resp.GetNote() != "" {
		if err := p.linef("%s", p.paint(yellow, clean(resp.GetNote()))); err != nil {
			return err
		}
	}
	return p.table(t, "No managed fields.", "")
}

func newApplicationEvents(t *tool) *cobra.Command {
	req := &controlv1.ListObjectEventsRequest{}
	var selector selectorFlags
	var object string
	cmd := &cobra.Command{
		Use:   "events NAME",
		Short: "Show the Kubernetes events of an application, the last one first.",
		Long: `Show the Kubernetes events of the objects of an application and of what they
created, such as Pods, the last one first. Kubernetes deletes events after an hour by
default.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if object != "" {
				if req.Object, err = selector.selector(object); err != nil {
					return err
				}
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListObjectEventsResponse, error) {
				resp, err := c.control.ListObjectEvents(ctx, req)
				if err != nil {
					return nil, unknownObject(failed("failed to list events", err))
				}
				return resp, nil
			}, (*printer).objectEvents)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&object, "object", "", "Only events of this object and of what it created, as KIND/NAME.")
	flags.Int32Var(&req.Limit, "limit", 100, "The most events to show, at most 500.")
	selector.register(flags)
	return aboutApplication(t, cmd, &req.ApplicationId)
}

func (p *printer) objectEvents(resp *controlv1.ListObjectEventsResponse) error {
	t := newTable(fixed("LAST"), fixed("TYPE"), fixed("REASON"), fixed("OBJECT"), fixed("COUNT"), flexible("MESSAGE"))
	for _, e := range resp.GetEvents() {
		kind := cell{text: e.GetType()}
		if e.GetType() == "Warning" {
			kind.color = yellow
		}
		t.add(p.age(e.GetLastAtMs()), kind, e.GetReason(), e.GetObject().GetKind()+" "+objectName(e.GetObject()), e.GetCount(), e.GetMessage())
	}
	errs := []error{p.table(t, "No events.", "")}
	if n := resp.GetLeftOut(); n > 0 {
		errs = append(errs, p.linef("%s", p.paint(faint, fmt.Sprintf("and %d older ones", n))))
	}
	if reason := resp.GetIncompleteReason(); reason != "" {
		errs = append(errs, p.linef("%s", p.paint(yellow, "Incomplete: "+clean(reason))))
	}
	return errors.Join(errs...)
}
